"""Decisions: pure functions from a session's current state to new facts."""
