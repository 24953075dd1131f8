"""Shell commands: parsed, matched with rules, refused if they are on the denylist."""
