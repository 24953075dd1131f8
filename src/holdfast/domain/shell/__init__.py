"""Shell commands: parsed, matched with rules, refused where they must never run."""
