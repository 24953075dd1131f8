"""Tools for asyncio that every package may use. They depend on no other package of the product."""
