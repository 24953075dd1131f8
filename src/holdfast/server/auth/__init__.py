"""Coming in: who may be here, by which name the server is called, and what each may do."""
