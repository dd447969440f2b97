"""Importing this registers the kernels of ONNX's layers, quantization, images, training and classical models."""

from __future__ import annotations

from asyncexec.ops.onnx import activations  # noqa: F401
