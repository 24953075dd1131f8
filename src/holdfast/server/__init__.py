"""Doors over HTTP: the gate that every request passes, the routes, the streams, the page."""
