"""SavedModels whose bytes were changed: each is read, or refused with a typed error."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asyncexec.framework.errors import OpError
from asyncexec.models.build import build_graph, signatures_of
from asyncexec.models.formats import read_model

GOLDEN = Path(__file__).parents[1] / "golden" / "saved_models"

pytestmark = pytest.mark.fuzz


@settings(max_examples=150)
@given(st.sampled_from(["v1_builder", "module"]), st.data())
def test_changed_bytes(name: str, data: st.DataObject) -> None:
    content = bytearray((GOLDEN / name / "saved_model.pb").read_bytes())
    for _ in range(data.draw(st.integers(1, 5))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        shutil.copytree(GOLDEN / name, path)
        (path / "saved_model.pb").write_bytes(content[: data.draw(st.integers(0, len(content)))])
        try:
            read = read_model(path)
            signatures_of(read, build_graph(read))
        except OpError:
            pass
