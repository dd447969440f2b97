"""Whatever the bytes of PNNX files are, what comes of them is a model or an OpError."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import asyncexec as ax
from asyncexec.framework.errors import OpError
from asyncexec.ops.pnnx.expression import ExpressionParser

pytestmark = pytest.mark.fuzz

GOLDEN: Final = Path(__file__).parents[1] / "golden" / "pnnx"
MODELS: Final = ["small", "functions", "attention", "detect"]
WORDS: Final = [
    "-1",
    "0",
    "99999999999999999999",
    "(1,2)",
    "()",
    "None",
    "nan",
    "=",
    "@w=(3)f32",
    "#0=(?)f32",
    "add(@0",
    "é",
]


def load(param: bytes, weights: bytes) -> None:
    """Load a model of these bytes; only an OpError may come of it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.pnnx.param"
        path.write_bytes(param)
        path.with_suffix(".bin").write_bytes(weights)
        with suppress(OpError), ax.Graph():
            ax.import_graph_def(ax.load_pnnx(path).graph_def)


@given(st.sampled_from(MODELS), st.data())
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_param_files_with_other_words(name: str, data: st.DataObject) -> None:
    lines = (GOLDEN / f"{name}.pnnx.param").read_text().split("\n")
    for _ in range(data.draw(st.integers(1, 3))):
        number = data.draw(st.integers(0, len(lines) - 1))
        words = lines[number].split(" ")
        place = data.draw(st.integers(0, len(words) - 1))
        key, is_pair, _ = words[place].partition("=")
        word = data.draw(st.sampled_from(WORDS) | st.text(max_size=8))
        words[place] = f"{key}={word}" if is_pair and data.draw(st.booleans()) else word
        lines[number] = " ".join(words)
    load("\n".join(lines).encode(), (GOLDEN / f"{name}.pnnx.bin").read_bytes())


@given(st.sampled_from(MODELS), st.data())
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_files_with_other_bytes(name: str, data: st.DataObject) -> None:
    files = [bytearray((GOLDEN / f"{name}.pnnx.{suffix}").read_bytes()) for suffix in ("param", "bin")]
    changed = files[data.draw(st.integers(0, 1))]
    for _ in range(data.draw(st.integers(1, 8))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del changed[data.draw(st.integers(0, len(changed) - 1)) :]
    load(bytes(files[0]), bytes(files[1]))


@given(st.text(st.sampled_from("@01.9e-+inf()[],adsqrtsize ")))
def test_expressions(text: str) -> None:
    with suppress(OpError):
        ExpressionParser(text, 2).parse()
