"""Tools that read, search and change files of a workspace."""
