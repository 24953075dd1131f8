"""How a turn is carried out: commands on sessions, the runner, and recovery of interrupted runs."""
