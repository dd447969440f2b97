"""``asyncexec doctor``: what is found on machines of all kinds, and on this one."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from asyncexec.cli import doctor as doctor_module
from asyncexec.cli.app import app
from asyncexec.cli.findings import Level, findings
from asyncexec.cli.machine import EXTRAS, Blas, Machine

GOOD = Machine(
    asyncexec="1.0",
    python="CPython 3.13.1",
    system="Linux x86_64",
    free_threaded=False,
    gil_enabled=True,
    numpy="2.4",
    blas=[Blas("openblas", "0.3", "SkylakeX", 8)],
    slow_blas=None,
    cores=8,
    usable_cores=8,
    core_limit=None,
    memory_limit_bytes=None,
    shared_memory_bytes=2**30,
    open_files=65536,
    open_files_most=65536,
    uvloop="0.22",
    missing={},
    devices={"CPU": ["x86_64"], "torch": ["H200"]},
    environment={},
)


def test_nothing_is_to_be_done_on_a_good_machine() -> None:
    assert all(each.level is Level.OK and not each.advice for each in findings(GOOD))


@pytest.mark.parametrize(
    ("change", "level", "topic", "advice"),
    [
        ({"slow_blas": "Set OPENBLAS_CORETYPE=SKYLAKEX"}, Level.COSTLY, "BLAS kernels", "SKYLAKEX"),
        ({"blas": []}, Level.NOTE, "BLAS", "asyncexec[ops]"),
        ({"uvloop": None}, Level.NOTE, "uvloop", "pip install uvloop"),
        ({"free_threaded": True}, Level.NOTE, "GIL", "PYTHON_GIL=0"),
        ({"core_limit": 2.0}, Level.COSTLY, "cores", "OPENBLAS_NUM_THREADS=2"),
        ({"memory_limit_bytes": 2**30}, Level.NOTE, "memory", "memory_limit"),
        ({"shared_memory_bytes": 2**26}, Level.COSTLY, "shared memory", "--shm-size"),
        ({"open_files": 1024}, Level.NOTE, "open files", "ulimit -n"),
        ({"open_files": 1024, "open_files_most": 1024}, Level.COSTLY, "open files", "administrator"),
        ({"environment": {"OMP_NUM_THREADS": "64"}}, Level.COSTLY, "OMP_NUM_THREADS", "OMP_NUM_THREADS=8"),
        ({"environment": {"OMP_NUM_THREADS": "1"}}, Level.NOTE, "OMP_NUM_THREADS", "no more threads"),
        ({"environment": {"OMP_NUM_THREADS": "many"}}, Level.NOTE, "OMP_NUM_THREADS", "no number"),
        ({"environment": {"OPENBLAS_CORETYPE": "ZEN"}}, Level.NOTE, "OPENBLAS_CORETYPE", "lacks"),
        ({"environment": {"PYTHONASYNCIODEBUG": "1"}}, Level.COSTLY, "PYTHONASYNCIODEBUG", "unset"),
        ({"devices": {"torch": ["fails: RuntimeError: driver"]}}, Level.COSTLY, "devices: torch", "driver"),
        ({"missing": {"onnx": ["onnx"]}}, Level.NOTE, "extra onnx", 'pip install "asyncexec[onnx]"'),
    ],
)
def test_each_trap_is_told_with_what_to_do(change: dict[str, Any], level: Level, topic: str, advice: str) -> None:
    found = [each for each in findings(dataclasses.replace(GOOD, **change)) if each.level is not Level.OK]
    assert [(each.level, each.topic) for each in found] == [(level, topic)]
    assert advice in found[0].advice


@pytest.mark.parametrize(("change", "code"), [({}, 0), ({"uvloop": None}, 0), ({"slow_blas": "Set it"}, 1)])
def test_the_exit_code_tells_whether_something_is_costly(
    change: dict[str, Any], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_module, "read_machine", lambda: dataclasses.replace(GOOD, **change))
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == code, result.output
    told = json.loads(CliRunner().invoke(app, ["doctor", "--json"]).stdout)
    assert told["machine"]["numpy"] == "2.4"
    assert ("costly" in {each["level"] for each in told["findings"]}) == bool(code)


def test_this_machine_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncexec.cli.machine._devices", lambda: {"CPU": []})  # torch takes seconds to import
    told = json.loads(CliRunner().invoke(app, ["doctor", "--json"]).stdout)["machine"]
    assert 1 <= told["usable_cores"] <= told["cores"]


def test_the_extras_are_those_of_the_project() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    without_modules = {"all", "retry"}
    assert EXTRAS.keys() == project["project"]["optional-dependencies"].keys() - without_modules
