"""Subnormal floats are zeros for the thread that asks for it, and for no other."""

from __future__ import annotations

import contextlib
import platform
import threading
from typing import Any

import numpy as np
import pytest

from asyncexec.process import subnormals
from asyncexec.process.subnormals import flushed_subnormals

KNOWN = platform.system() == "Linux" and platform.machine() in ("x86_64", "aarch64")
needs_known_machine = pytest.mark.skipif(not KNOWN, reason="this machine is not known")


def halves(kind: Any) -> Any:
    """Numbers that are too small for the exponent of *kind*."""
    return np.full(37, np.finfo(kind).tiny, kind) * kind(0.5)


@needs_known_machine
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_what_is_given_and_what_is_taken_is_zero(kind: Any) -> None:
    tiny = halves(kind)
    assert np.all(tiny > 0)
    with flushed_subnormals():
        given, taken = halves(kind), tiny * kind(2.0**30)
    assert not given.any()
    assert not taken.any()
    assert np.all(halves(kind) > 0)


@needs_known_machine
def test_environment_is_restored_after_an_error_and_after_nesting() -> None:
    with contextlib.suppress(KeyError), flushed_subnormals():
        with flushed_subnormals():
            pass
        assert not halves(np.float32).any()
        raise KeyError
    assert np.all(halves(np.float32) > 0)


@needs_known_machine
def test_other_threads_go_on_as_before() -> None:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append((begun.wait(), halves(np.float32))))
    begun = threading.Event()
    thread.start()
    with flushed_subnormals():
        begun.set()
        thread.join()
    assert np.all(found[0][1] > 0)


def test_unknown_machine_computes_as_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    subnormals._library.cache_clear()
    try:
        with flushed_subnormals():
            assert np.all(halves(np.float32) > 0)
    finally:
        subnormals._library.cache_clear()
