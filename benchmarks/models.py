"""Rows of models: networks of usual sizes, beside TensorFlow and ONNX Runtime at their defaults.

TensorFlow runs the same frozen graph, ONNX Runtime the same network as torch exports it.  Their files are built once,
by model_files.py, and kept in ``build/models``.  Where ONNX Runtime is installed, we take part a second time, as where
it is not.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest import mock

import numpy as np

import asyncexec as ax
from asyncexec.framework.clock import NS_PER_S
from asyncexec.framework.errors import FailedPreconditionError
from asyncexec.framework.extras import is_installed
from asyncexec.session import library_passes
from benchmarks import tensorflow_session
from benchmarks.measure import Contestant, Settings, Times, alternate, calling, ratios
from benchmarks.report import OURS, TENSORFLOW, Benchmark, Row, Target

ONNX: Final = "ONNX Runtime"
OWN_KERNELS: Final = f"{OURS}, own kernels"
FOLDER: Final = Path(__file__).parents[1] / "build" / "models"
BATCHES: Final = (1, 16)
IN_FLIGHT: Final = 16
MS_PER_S: Final = 1000
SETTLE_S: Final = 0.1  # ONNX Runtime's threads spin for some 50 ms after a call, by its defaults
ROUND_NS: Final = NS_PER_S // 20  # so that a quick model is not only called right after such a pause
WARM_NS: Final = 5 * NS_PER_S  # some hundred calls of most models
MOST: Final = 1.15  # of the better one, with ONNX Runtime installed
# Of TensorFlow's, with our own kernels alone.
MOST_OF_TENSORFLOW: Final = {
    "convolutions": (2.0, "resnet50 mobilenetv2 efficientnetb0 densenet121 inceptionv3 unet"),
    "transformers": (1.5, "bert vit_tiny"),
    "loops": (1.0, "bilstm gru greedy training"),
}
MODELS: Final = tuple(name for _, names in MOST_OF_TENSORFLOW.values() for name in names.split())


@dataclass(frozen=True, slots=True)
class Files:
    """What has been built of a model: its graph, its inputs, and the same network for ONNX Runtime, if there is one."""

    graph: Path
    onnx: Path | None
    takes: str
    gives: str
    initializer: str | None
    given: np.ndarray


def files_of(name: str, batch: int) -> Files:
    """The files of model *name*, and an input of *batch* rows.

    Raises:
        FailedPreconditionError: they cannot be built: TensorFlow is not installed.
    """
    folder = FOLDER / name
    if not (folder / "about.json").exists():
        if not is_installed("keras"):
            raise FailedPreconditionError("TensorFlow makes the models", hint="make check-deep installs it")
        made = folder.with_name(f"{name}.new")
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(parents=True)
        for part in ("graph", "onnx"):
            command = [sys.executable, "-m", "benchmarks.model_files", part, name, str(made)]
            subprocess.run(command, check=True, capture_output=True)
        made.replace(folder)
    about = json.loads((folder / "about.json").read_text())
    onnx, shape = folder / "model.onnx", about["shape"]
    given = np.random.default_rng(0).normal(size=(batch, *shape)).astype(np.float32)
    return Files(
        folder / "model.pb",
        onnx if onnx.exists() else None,
        about["input"],
        about["output"],
        about.get("initializer"),
        given,
    )


def measure(name: str, batch: int, in_flight: int, settings: Settings) -> Row:
    """One model, run *in_flight* times at a time."""
    files = files_of(name, batch)
    times = asyncio.run(_race(files, in_flight, settings))
    times = {key: each.scaled(MS_PER_S) for key, each in times.items()}
    others = {key: each for key, each in times.items() if key not in (OURS, OWN_KERNELS)}
    found = ratios(times[OURS], others.values())
    limit = 1.0 if in_flight > 1 else MOST
    targets = []
    if is_installed("onnxruntime"):
        targets.append(Target(f"at most {limit:g} of the better one", None if found is None else found[0], limit))
    notes = [f"{key} {each.median:.3g} ms" for key, each in times.items() if key not in (OURS, TENSORFLOW)]
    if in_flight == 1:
        own = times.get(OWN_KERNELS, times[OURS])
        share = next(most for most, names in MOST_OF_TENSORFLOW.values() if name in names.split())
        against = ratios(own, [times[TENSORFLOW]] if TENSORFLOW in times else [])
        targets.append(
            Target(f"own kernels at most {share:g} of TensorFlow's", None if against is None else against[0], share)
        )
    return Row(_named(name, batch, in_flight), "ms", times, tuple(targets), tuple(notes))


def _named(name: str, batch: int, in_flight: int) -> str:
    return f"models_{name}_{batch}" if in_flight == 1 else f"models_{name}_{in_flight}_in_flight"


async def _race(files: Files, in_flight: int, settings: Settings) -> dict[str, Times]:
    with ThreadPoolExecutor(in_flight) as pool:
        contestants = [await _ours(OURS, files, in_flight)]
        if in_flight == 1 and is_installed("onnxruntime"):
            contestants.append(await _ours(OWN_KERNELS, files, in_flight, is_alone=True))
        blocking: dict[str, Callable[[], Any]] = {}
        if tensorflow_session.takes_part(settings):
            blocking[TENSORFLOW] = open_tensorflow(files)
        if files.onnx is not None and is_installed("onnxruntime"):
            blocking[ONNX] = _onnx(files)
        for key, run in blocking.items():
            contestants.append(await _threaded(key, run, in_flight, pool))
        return await alternate(contestants, settings, settle_s=SETTLE_S)


async def open_ours(files: Files, *, is_alone: bool = False) -> ax.Session:
    """A session of the model; one that *is_alone* does as it would if ONNX Runtime were not installed."""
    with mock.patch.object(library_passes, "has_onnx_runtime", return_value=False) if is_alone else nullcontext():
        session = ax.Session(ax.load_model(files.graph, allowed_ops=("VarHandleOp",)).graph)
    if files.initializer is not None:
        await session.run([], targets=[files.initializer])
    return session


async def _ours(name: str, files: Files, in_flight: int, *, is_alone: bool = False) -> Contestant:
    session = await open_ours(files, is_alone=is_alone)
    feeds = {files.takes: files.given}

    async def run() -> None:
        await session.run(files.gives, feeds)

    async def run_all() -> None:
        await asyncio.gather(*(session.run(files.gives, feeds) for _ in range(in_flight)))

    return await calling(name, run if in_flight == 1 else run_all, ROUND_NS, WARM_NS)


def open_tensorflow(files: Files) -> Callable[[], Any]:
    """What runs the model in TensorFlow."""
    session = tensorflow_session.open_session(tensorflow_session.read(files.graph.read_bytes()))
    if files.initializer is not None:
        session.run(files.initializer)
    return tensorflow_session.runner(session, files.gives, {files.takes: files.given})


def _onnx(files: Files) -> Callable[[], Any]:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(files.onnx), providers=["CPUExecutionProvider"])
    given = np.ascontiguousarray(files.given.transpose(0, 3, 1, 2)) if files.given.ndim == 4 else files.given
    return partial(session.run, None, {"x": given})


async def _threaded(name: str, run: Callable[[], Any], in_flight: int, pool: ThreadPoolExecutor) -> Contestant:
    if in_flight == 1:
        return await calling(name, run, ROUND_NS, WARM_NS)

    def run_all() -> None:
        for each in [pool.submit(run) for _ in range(in_flight)]:
            each.result()

    return await calling(name, run_all, ROUND_NS, WARM_NS)


BENCHMARKS: Final = tuple(
    Benchmark(_named(name, batch, in_flight), partial(measure, name, batch, in_flight), is_long=True)
    for name in MODELS
    for batch, in_flight in ((1, 1), (16, 1), (1, IN_FLIGHT))
)
