"""Doing what `office` has ports for: what is changed while a server runs, and stays so."""
