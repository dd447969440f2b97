"""Modules that a stage needs are imported on another thread than that of the event loop."""

from __future__ import annotations

import asyncio
import importlib
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from asyncexec.framework.cooperative import run_at_once, run_in_slices
from asyncexec.framework.op_registry import OpRegistry
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.process import imports
from asyncexec.process.imports import imported

NAME = "imported_by_a_stage"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / f"{NAME}.py").write_text("import threading\n\nthread = threading.current_thread()\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, NAME, raising=False)
    monkeypatch.setattr(imports, "_begun", set())
    return NAME


async def test_in_an_event_loop_another_thread_imports(module: str) -> None:
    await run_in_slices(imported([module]))
    assert sys.modules.pop(module).thread is not threading.current_thread()


def test_elsewhere_it_is_imported_at_once(module: str) -> None:
    run_at_once(imported([module]))
    assert sys.modules.pop(module).thread is threading.current_thread()


def test_what_is_there_is_not_imported_again() -> None:
    assert list(imported(["asyncexec", "sys"])) == []


def test_what_is_not_installed_is_left_out(module: str) -> None:
    run_at_once(imported(["no_such_module_anywhere", module]))
    assert sys.modules.pop(module) is not None


async def test_the_module_of_an_op_is_imported_on_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    registry, threads = OpRegistry(), []

    def load(name: str) -> None:
        threads.append(threading.current_thread())
        registry.declare(name, lambda: op_registry.lookup("Identity"))

    registry.set_loader(["Late"], load)
    monkeypatch.setattr(imports, "op_registry", registry)
    await run_in_slices(imports.looked_up(["Late"]))
    assert len(threads) == 1
    assert threads[0] is not threading.current_thread()
    assert list(imports.looked_up(["Late"])) == []


async def test_a_loop_goes_on_while_a_module_is_imported_beside_it(module: str) -> None:
    while (thread := imports.import_beside(module, "thread")) is None:  # noqa: ASYNC110 - the import tells nobody
        await asyncio.sleep(0)
    assert thread is not threading.current_thread()
    assert imports.import_beside(module, "thread") is thread
    thread.join()
    del sys.modules[module]


def test_elsewhere_it_is_imported_before_it_is_used(module: str) -> None:
    assert imports.import_beside(module, "thread") is threading.current_thread()
    del sys.modules[module]


async def test_a_module_whose_import_is_under_way_is_waited_for_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, begun, may_end = f"{NAME}_slowly", threading.Event(), threading.Event()
    (tmp_path / f"{name}.py").write_text("import slow_import\n\nslow_import.wait()\nis_whole = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "slow_import", SimpleNamespace(wait=lambda: (begun.set(), may_end.wait())))
    thread = threading.Thread(target=importlib.import_module, args=(name,))
    thread.start()
    await asyncio.to_thread(begun.wait)
    stage = asyncio.ensure_future(run_in_slices(imported([name])))
    assert imports.import_beside(name, "is_whole") is None
    may_end.set()
    await stage
    assert imports.import_beside(name, "is_whole")
    await asyncio.to_thread(thread.join)
    imports._begun.discard(name)
    del sys.modules[name]
