"""All translations to ONNX, by op, and the ops that make a cluster worth its while."""

from __future__ import annotations

from collections.abc import Mapping
from functools import wraps
from typing import Final

from asyncexec.graph.node import Node
from asyncexec.passes.onnx_arrays import ARRAYS
from asyncexec.passes.onnx_emitter import Emitter, Translation, UntranslatableError
from asyncexec.passes.onnx_math import MATH
from asyncexec.passes.onnx_nn import HEAVY, NN
from asyncexec.passes.onnx_nodes import HEAVY_ONNX, ONNX_NODES
from asyncexec.passes.pnnx_nodes import HEAVY_PNNX, PNNX


def _of_unchecked(translation: Translation) -> Translation:
    """*translation* of nodes that may have any inputs and attributes: those of ONNX and PNNX.

    A node with others than its op asks for is not translated.  Its own kernel tells what is wrong with it.
    """

    @wraps(translation)
    def translate(emitter: Emitter, node: Node) -> None:
        try:
            translation(emitter, node)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise UntranslatableError(str(error)) from error

    return translate


TRANSLATIONS: Final[Mapping[str, Translation]] = {
    **MATH,
    **ARRAYS,
    **NN,
    **{op: _of_unchecked(translation) for op, translation in {**ONNX_NODES, **PNNX}.items()},
}
HEAVY_OPS: Final = frozenset({**HEAVY, **HEAVY_ONNX, **HEAVY_PNNX})
