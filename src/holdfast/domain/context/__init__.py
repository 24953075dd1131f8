"""What a model is sent of a conversation."""
