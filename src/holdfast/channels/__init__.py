"""Chat apps: turn their messages into turns, and deliver answers back once."""
