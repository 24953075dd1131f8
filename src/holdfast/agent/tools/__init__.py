"""What the agent can do, one file per tool. A tool answers calls and knows neither loop nor engine."""
