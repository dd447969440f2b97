"""Many steps in a row."""
