"""A step: what is ready, what runs, what ends."""
