"""`holdfast chat`: a conversation in the terminal, and one message from a script."""
