"""Shapes, slices, gathers and the like."""
