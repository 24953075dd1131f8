"""The settings of the server, the file that holds them, and changing them while it runs."""
