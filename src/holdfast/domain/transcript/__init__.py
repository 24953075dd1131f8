"""The transcript of a conversation: fold, export, redaction and labels."""
