"""What kernels cost, and who holds the loop."""
