"""Who answers: the loop of model and tool steps, models and tools. Reaches the engine by `ports` alone."""
