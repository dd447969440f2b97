"""The native code of layers for each kind of processor that this one is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from asyncexec.executor.plans import native_layers
from asyncexec.executor.plans.native_calls import COMPILER
from asyncexec.executor.plans.native_layers import LAYERS, CompiledLayers
from asyncexec.regions.native_vectors import AVX2, AVX512, Registers
from asyncexec.session import library_passes

KINDS: Final[dict[str, Registers]] = {"AVX-512": AVX512, "AVX2": AVX2}


@contextmanager
def compiled(kind: str) -> Iterator[CompiledLayers]:
    """The code for processors of that *kind*; the test is skipped if this one is of another."""
    wanted = KINDS[kind]
    with pytest.MonkeyPatch.context() as patch:
        best = native_layers._registers()
        if best is AVX2 and wanted is AVX512:
            pytest.skip("this processor has no AVX-512")
        patch.setattr(native_layers, "_registers", lambda: wanted)
        yield CompiledLayers()


def native_soon(patch: pytest.MonkeyPatch) -> list[float]:
    """Let layers become native at once, without ONNX Runtime; the work that native code was asked for."""
    asked: list[float] = []

    def find(_: object, work: float) -> CompiledLayers | None:
        asked.append(work)
        if LAYERS._made is None:
            COMPILER.compile(LAYERS)
        return LAYERS._made

    patch.setattr(library_passes.LayersFinder, "__call__", find)
    patch.setattr(library_passes, "has_onnx_runtime", lambda: False)
    return asked
