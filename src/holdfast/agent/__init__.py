"""The agent: the loop of model and tool steps, the context cache, the registry. It imports no engine."""
