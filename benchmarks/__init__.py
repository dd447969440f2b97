"""The benchmarks: ``python -m benchmarks`` measures asyncexec side by side with its floor and with TensorFlow."""
