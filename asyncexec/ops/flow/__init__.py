"""Control flow, calls of functions, batches, collectives, streams."""
