"""The page in a real browser: its first load, a long conversation, a minute of streaming, and many tabs."""
