"""Settings of the server: their declarations, the settings file, and changes at run time."""
