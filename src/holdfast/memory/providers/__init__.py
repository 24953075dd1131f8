"""Those who remember: each is a `memory.ports.Provider`."""
