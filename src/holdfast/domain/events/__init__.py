"""The events of a session: their facts, their parts and their encoding."""
