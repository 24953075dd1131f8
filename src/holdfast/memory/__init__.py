"""Long-term memory: commit completed turns to a provider once, and recall what it knows.

This package imports neither the engine nor the store. It reaches them through `ports`.
"""
