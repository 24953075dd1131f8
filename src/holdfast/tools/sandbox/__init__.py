"""Where commands run: confined, supervised and gone when their call is."""
