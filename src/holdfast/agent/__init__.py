"""Who answers. Empty until models and tools exist."""
