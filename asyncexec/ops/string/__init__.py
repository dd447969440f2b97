"""Strings."""
