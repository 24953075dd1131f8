"""What a token costs to read, by our adapters and by the official SDKs."""
