"""Credentials: tokens, sign-ins and the password."""
