"""Passes between pruning and compiling: ClientGraph -> ClientGraph."""
