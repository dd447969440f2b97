"""PNNX files: ``.pnnx.param``, the operators as text, and ``.pnnx.bin``, a zip with their attributes."""
