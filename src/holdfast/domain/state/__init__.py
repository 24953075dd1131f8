"""The rows that events add up to, and the effect of each event on them."""
