"""Triton's own public tests, run unchanged against the service.  See ``__main__``."""
