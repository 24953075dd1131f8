"""The built-in memory providers and the loader of installed ones: each is a `memory.ports.Provider`."""
