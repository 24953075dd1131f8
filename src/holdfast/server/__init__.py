"""Doors over HTTP."""
