"""Agents and prompts from files."""
