"""What is remembered: telling memory what happened, once, and asking it what it knows.

Depends on the domain alone; the engine, the store and the models are reached through `ports`.
"""
