"""The agent: the loop of model and tool steps, the cache of contexts, the registry. It knows no engine."""
