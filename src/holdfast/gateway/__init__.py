"""Doors to chat apps: what comes from them becomes turns, and what is answered goes back, once."""
