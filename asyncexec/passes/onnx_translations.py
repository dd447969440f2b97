"""All translations to ONNX, by op, and the ops that make a cluster worth its while."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from asyncexec.passes.onnx_arrays import ARRAYS
from asyncexec.passes.onnx_emitter import Translation
from asyncexec.passes.onnx_math import MATH
from asyncexec.passes.onnx_nn import HEAVY, NN
from asyncexec.passes.onnx_nodes import HEAVY_ONNX, ONNX_NODES
from asyncexec.passes.pnnx_nodes import HEAVY_PNNX, PNNX

TRANSLATIONS: Final[Mapping[str, Translation]] = {**MATH, **ARRAYS, **NN, **ONNX_NODES, **PNNX}
HEAVY_OPS: Final = frozenset({**HEAVY, **HEAVY_ONNX, **HEAVY_PNNX})
