"""What is remembered. Empty until providers exist."""
