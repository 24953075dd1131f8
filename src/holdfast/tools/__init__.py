"""Tools that the agent can call. A tool knows neither the agent nor the engine."""
