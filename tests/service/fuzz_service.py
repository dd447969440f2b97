"""A service in a process of its own, with models of every kind that a client may send nonsense to."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncexec as ax
from asyncexec.service.models.files import ModelSource
from asyncexec.service.server import Ports, serve
from tests.service.http_models import calling, unary
from tests.service.models import sums

TOKEN = "a-token"
# Lines that grpc's library writes, and those of calls of the model that is broken.
_EXPECTED = re.compile(r"[IWE]\d{4} |protocol=.* model=broken ")
# What a client may send to each model as JSON, and gets back.
ANSWERS: Mapping[str, tuple[str, list[int], list[Any], list[Any]]] = {
    "floats": ("FP32", [2], [1.5, -2.0], [1.5, -2.0]),
    "texts": ("BYTES", [2], ["", "é\0"], ["", "é\0"]),
    "bytes": ("INT8", [1, 2], [127, -127], [-127, 127]),
    "flags": ("BOOL", [2, 1], [True, False], [False, True]),
    "batched": ("FP64", [1, 2], [0.5, 1.0], [-0.5, -1.0]),
    "slow": ("FP32", [], [2.5], [2.5]),
}


def all_sources() -> Mapping[str, ModelSource | ax.Graph]:
    """Models by name; each has the input x and the output y but for "sums"."""

    async def slow(value: Any) -> Any:
        await asyncio.sleep(0.01)
        return value

    async def broken(value: Any) -> Any:
        raise ValueError(f"no {value}")

    batched = {"max_batch_size": 4, "dynamic_batching": {"max_queue_delay_microseconds": 100}}
    return {
        "floats": unary(ax.float32, [None], ax.identity),
        "texts": unary(ax.string, [None], ax.identity),
        "bytes": unary(ax.int8, [None, 2], ax.negative),
        "flags": unary(ax.bool, None, ax.logical_not),
        "batched": ModelSource(unary(ax.float64, [None, 2], ax.negative), config=batched),
        "slow": calling(slow),
        "halves": unary(ax.float16, [None], ax.identity),
        "sums": sums(),
        "broken": calling(broken),
    }


@dataclass(frozen=True, slots=True)
class Running:
    """A service that runs as a process."""

    http: int
    grpc: int
    process: subprocess.Popen[str]
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http}"

    def rss_mb(self) -> float:
        """How much memory it has now."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@contextmanager
def running(folder: Path, **options: Any) -> Iterator[Running]:
    """The service of all sources, while the block runs; it ends as it should, and has logged nothing else."""
    log = folder / "log"
    command = [sys.executable, "-m", "tests.service.fuzz_service", json.dumps(options)]
    with (
        log.open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        assert process.stdout is not None
        ports = json.loads(process.stdout.readline())
        try:
            yield Running(ports["http"], ports["grpc"], process, log)
            assert process.poll() is None
        finally:
            process.terminate()
            status = process.wait(60)
    told = [line for line in log.read_text().splitlines() if line and not _EXPECTED.match(line)]
    assert (status, told) == (0, []), f"{status}: {told[:5]}"


async def _main() -> None:
    def tell(ports: Ports) -> None:
        print(json.dumps({"http": ports.http, "grpc": ports.grpc}), flush=True)

    await serve(all_sources(), on_start=tell, http_port=0, grpc_port=0, **json.loads(sys.argv[1]))


if __name__ == "__main__":
    ax.run(_main)
