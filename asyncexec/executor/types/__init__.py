"""Executors by name, and those of users."""
