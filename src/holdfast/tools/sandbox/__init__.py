"""Run commands in a sandbox, under a supervisor that stops all that they started."""
