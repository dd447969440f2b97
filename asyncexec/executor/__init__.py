"""Runs one step of one partition."""
