"""The model's context: how a conversation becomes a request."""
