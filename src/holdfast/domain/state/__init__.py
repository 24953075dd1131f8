"""A session's rows, and the effect of each event on them."""
