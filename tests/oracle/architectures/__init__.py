"""Architectures that TensorFlow and Keras build here, small, in several forms; ``python -m`` this prints a table."""
