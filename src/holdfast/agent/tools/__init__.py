"""What the agent can do, one file per tool. A tool answers calls; it knows neither the loop nor the engine."""
