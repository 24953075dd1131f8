"""Holdfast: a self-hosted agent server that never loses a turn."""

__version__ = "0.1.0"
