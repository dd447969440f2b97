"""Importing this registers the kernels of ONNX's general ops: mathematics, shapes, indices, strings and the like."""

from __future__ import annotations

from asyncexec.ops.onnx import (  # noqa: F401
    casting,
    comparison,
    generator,
    image_decoder,
    indexing,
    linalg,
    math,
    ordering,
    random,
    reduction,
    scatter,
    shape,
    signal,
    strings,
    tfidf,
)
