"""How a turn is carried out. Empty until runs exist."""
