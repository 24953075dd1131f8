"""`holdfast sessions`: one file per command."""
