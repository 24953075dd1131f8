"""Doors to chat apps. Empty until channels exist."""
