"""Doors in the terminal: one file per command."""
