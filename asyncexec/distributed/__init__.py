"""A step that is spread over processes."""
