"""Agents and prompts that people write in files."""
