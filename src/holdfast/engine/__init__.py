"""The engine: commands on sessions, the runner, and recovery of interrupted runs."""
