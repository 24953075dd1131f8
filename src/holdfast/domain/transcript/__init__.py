"""A conversation as people read, export and search it."""
