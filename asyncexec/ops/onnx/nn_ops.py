"""Importing this registers the kernels of ONNX's layers, quantization, images, training and classical models."""

from __future__ import annotations

from asyncexec.ops.onnx import (  # noqa: F401
    activations,
    attention,
    convolutions,
    deformable,
    linear_attention,
    losses,
    ml_features,
    ml_linear,
    ml_trees,
    normalizations,
    poolings,
    quantization,
    recurrent,
    regions,
    resize,
    sampling,
    suppression,
    training,
)
