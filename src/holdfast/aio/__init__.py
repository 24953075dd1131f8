"""Tools for asyncio that every package may use. They know nothing of the product."""
