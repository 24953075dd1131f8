"""Tools: what the agent can do. A tool answers calls and knows neither the agent nor the engine."""
