"""Telegram as a channel."""
