"""The SQLite store: one file, one writer at a time, any number of processes."""
