"""The ports of a store, and the stores that implement them."""
