"""The passes that may change the last bits of results, as a session is configured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

from asyncexec.framework.cooperative import Stage
from asyncexec.framework.extras import is_installed, require
from asyncexec.framework.layer_rule import FindLayers, NativeLayers
from asyncexec.graph.node import Node
from asyncexec.passes.fold_batch_norms import FoldBatchNorms
from asyncexec.passes.fuse_layers import fuse_layers, may_have_layers
from asyncexec.passes.onnx_clusters import OnnxClusters
from asyncexec.passes.recurrent_loops import fuse_recurrent_loops, may_have_recurrent_loops
from asyncexec.passes.registry import GraphPass, Level, PassFunction, PassGrouping
from asyncexec.process.imports import import_beside
from asyncexec.process.onnx_session import EXTRA, has_onnx_runtime
from asyncexec.session.session_config import SessionConfig

# Multiplications of a call from which on it may be worth to load a library, and to measure it.
MIN_WORK: Final = 1e7
_LAYERS: Final = ("asyncexec.executor.plans.native_layers", "LAYERS")
_PHASE: Final = 200  # behind the optimizer


@cache
def has_llvmlite() -> bool:
    """Whether native code can be made; looked for once, as that takes two milliseconds."""
    return is_installed("llvmlite")


def library_passes(config: SessionConfig) -> Sequence[GraphPass]:
    """The passes of a session with *config*.

    Raises:
        MissingExtraError: it asks for a library that is not installed.
    """
    is_forced = config.jit == "onnxruntime"
    if is_forced and not has_onnx_runtime():
        for module in ("onnxruntime", "onnx"):
            require(module, extra=EXTRA)
    if config.jit == "off" or (not is_forced and _is_watched(config)):
        return ()
    clusters = OnnxClusters(0.0 if is_forced else MIN_WORK)
    found = [_always("onnx_clusters", clusters, clusters.applies)] if has_onnx_runtime() else []
    if config.memory_limit is not None:  # which counts neither new filters nor what a layer computes for all steps
        return found
    recurrent = _always("fuse_recurrent_loops", fuse_recurrent_loops, may_have_recurrent_loops, _PHASE - 1)
    return (recurrent, *found, *(() if is_forced else _fusions()))


def find_layers(config: SessionConfig) -> FindLayers | None:
    """What gives the native code of convolutions, for a session with *config*; None if there is to be none."""
    stays = config.jit == "off" or _is_watched(config) or config.memory_limit is not None
    return None if stays or not has_llvmlite() else LayersFinder()


class LayersFinder:
    """Native code of layers, whose modules are imported when it is asked for, but not on the thread of a loop."""

    def __init__(self) -> None:
        self._layers: FindLayers | None = None

    def __call__(self, work: float, /) -> NativeLayers | None:
        layers = self._layers or self._found()
        return None if layers is None else layers(work)

    def is_coming(self) -> bool:
        """Have it made now; whether that is still to end."""
        layers = self._layers or self._found()
        return layers is None or layers.is_coming()

    def _found(self) -> FindLayers | None:
        self._layers = import_beside(*_LAYERS)
        return self._layers


def _is_watched(config: SessionConfig) -> bool:
    return config.debug or config.schedule_seed is not None


def _fusions() -> Sequence[GraphPass]:
    """Of what ONNX Runtime has no part of."""
    folding = FoldBatchNorms()
    return (
        _always("fold_batch_norms", folding, folding.applies, _PHASE + 1),
        _always("fuse_layers", fuse_layers, may_have_layers, _PHASE + 1),
    )


def _always(
    name: str, function: PassFunction, applies: Callable[[Sequence[Node]], Stage[bool]], phase: int = _PHASE
) -> GraphPass:
    grouping = PassGrouping.POST_PLACEMENT
    return GraphPass(name, grouping, phase, function, Level.ALWAYS, is_ours=True, applies=applies)
