"""SQLite as a store: one file, one writer at a time, any number of processes."""
