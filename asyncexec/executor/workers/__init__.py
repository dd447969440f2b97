"""Kernels on threads and in processes."""
