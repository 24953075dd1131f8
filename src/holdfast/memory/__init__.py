"""Long-term memory: commit completed turns to a provider, once, and ask it what it knows.

It knows no engine and no store: they are reached through `ports`.
"""
