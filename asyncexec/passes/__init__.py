"""Passes: graph -> graph, between what a user wrote and what an executor runs.  Read ``registry.py`` first."""
