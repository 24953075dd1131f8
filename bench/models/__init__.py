"""Measure the cost of reading a token, by our adapters and by the official SDKs."""
