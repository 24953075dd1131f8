"""Measure the page in a real browser: its first load, a long conversation, streaming, and many tabs."""
