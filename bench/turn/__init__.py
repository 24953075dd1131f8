"""A turn end to end, under load, beside a bare pass-through and a durable prototype of the same path."""
