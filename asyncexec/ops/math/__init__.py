"""Elementwise math, comparisons, reductions and products."""
