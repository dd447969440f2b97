"""Graphs of cheap nodes as Python functions: structure recovered, statements put in order, source written."""
