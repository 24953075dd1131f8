"""Chat apps: what comes from them becomes turns, and answers go back once."""
