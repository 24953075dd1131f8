"""The HTTP server: the gate that every request passes, the routes, the streams, the page."""
