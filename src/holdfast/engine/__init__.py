"""How a turn is carried out: verbs that change sessions, runs that work, and recovery of what was cut off."""
