"""Kernels with ONNX's semantics, as nodes of the op domain ``Onnx>``."""
