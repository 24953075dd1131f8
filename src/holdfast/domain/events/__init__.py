"""The events of a session: what happened, what it is made of, and how it is stored."""
