"""Where things are kept: the ports any store has, and the stores that have them."""
