"""Compiled plans, and which executor runs a signature."""
