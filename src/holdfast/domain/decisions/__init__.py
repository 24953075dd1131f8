"""What people and runs may do: pure functions from the current state to new events."""
