"""What there is of this machine and this installation, as ``asyncexec doctor`` reads it."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import shutil
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

try:
    import resource
except ImportError:  # Windows has none
    resource = None  # type: ignore[assignment]

from asyncexec.framework.extras import is_installed, require
from asyncexec.process.blas_threads import slow_kernels
from asyncexec.process.cores import core_limit, usable_cores
from asyncexec.process.free_memory import memory_limit

_resource: Any = resource  # None is no module to type checkers

# What each extra brings that is imported; extras for others' engines are told by these, too.
EXTRAS: Final[Mapping[str, Sequence[str]]] = {
    "cli": ("typer", "rich"),
    "client": ("grpc", "google.protobuf"),
    "dask": ("distributed",),
    "demo": ("httpx", "h11", "sniffio", "starlette", "uvicorn", "websockets", "PIL"),
    "durable": ("aiosqlite", "safetensors"),
    "image": ("PIL",),
    "jax": ("jax",),
    "jit": ("llvmlite",),
    "obstore": ("obstore",),
    "onnx": ("onnx",),
    "ops": ("scipy", "threadpoolctl", "ml_dtypes", "re2", "farmhash"),
    "otel": ("opentelemetry",),
    "progress": ("rich",),
    "prometheus": ("prometheus_client",),
    "ray": ("ray",),
    "ort": ("onnxruntime", "onnx"),
    "safetensors": ("safetensors",),
    "serve": ("grpc", "h11", "httptools", "orjson", "prometheus_client", "starlette", "uvicorn", "websockets"),
    "tf": ("google_crc32c", "google.protobuf"),
    "torch": ("torch", "array_api_compat"),
}
ENVIRONMENT: Final = (
    "OPENBLAS_CORETYPE",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "PYTHONASYNCIODEBUG",
    "PYTHONDEVMODE",
)
_SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108


@dataclass(frozen=True, slots=True)
class Blas:
    """A library of linear algebra that numpy has loaded."""

    name: str
    version: str
    kernels: str  # the processor that its kernels are for; "" where it does not tell
    threads: int


@dataclass(frozen=True, slots=True)
class Machine:
    """What was found; numbers are None where the system does not tell.

    Attributes:
        slow_blas: what to do where BLAS has faster kernels than it uses.
        cores: all of the machine.
        usable_cores: those that this process may run on.
        core_limit: how many of them it may use at a time (a container's limit).
        missing: the modules that each extra lacks; no key where it lacks none.
        devices: of each type, their names; of a library that fails, why.
        environment: those variables of ENVIRONMENT that are set.
    """

    asyncexec: str
    python: str
    system: str
    free_threaded: bool
    gil_enabled: bool
    numpy: str
    blas: Sequence[Blas]
    slow_blas: str | None
    cores: int
    usable_cores: int
    core_limit: float | None
    memory_limit_bytes: int | None
    shared_memory_bytes: int | None
    open_files: int | None
    open_files_most: int | None
    uvloop: str | None
    missing: Mapping[str, Sequence[str]]
    devices: Mapping[str, Sequence[str]]
    environment: Mapping[str, str]


def read_machine() -> Machine:
    """This machine; it imports the libraries of devices, which may take seconds."""
    import numpy as np

    files = _resource.getrlimit(_resource.RLIMIT_NOFILE) if _resource is not None else (None, None)
    return Machine(
        asyncexec=_version("asyncexec") or "(not installed)",
        python=f"{platform.python_implementation()} {platform.python_version()}",
        system=f"{platform.system()} {platform.machine()}",
        free_threaded=bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
        gil_enabled=getattr(sys, "_is_gil_enabled", lambda: True)(),
        numpy=np.__version__,
        blas=_blas(),
        slow_blas=slow_kernels(),
        cores=os.cpu_count() or 1,
        usable_cores=usable_cores(),
        core_limit=core_limit(),
        memory_limit_bytes=memory_limit(),
        shared_memory_bytes=_free_bytes(_SHARED_MEMORY),
        open_files=_limit(files[0]),
        open_files_most=_limit(files[1]),
        uvloop=_version("uvloop"),
        missing=missing_modules(),
        devices=_devices(),
        environment={name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
    )


def missing_modules() -> dict[str, list[str]]:
    """The modules of each extra that are not installed."""
    found = {extra: [name for name in names if not is_installed(name)] for extra, names in EXTRAS.items()}
    return {extra: names for extra, names in found.items() if names}


def _free_bytes(folder: str) -> int | None:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


def _limit(value: int | None) -> int | None:
    return None if value is None or value < 0 else value


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _blas() -> list[Blas]:
    if not is_installed("threadpoolctl"):
        return []
    found = require("threadpoolctl", extra="ops").threadpool_info()
    return [
        Blas(
            str(each.get("internal_api")),
            str(each.get("version") or ""),
            str(each.get("architecture") or ""),
            int(each.get("num_threads") or 1),
        )
        for each in found
        if each.get("user_api") == "blas"
    ]


def _devices() -> dict[str, list[str]]:
    found = {"CPU": [platform.processor() or platform.machine()]}
    for name, read in (("torch", _torch_devices), ("jax", _jax_devices)):
        if is_installed(name):
            try:
                found[name] = read(require(name, extra=name))
            except Exception as error:  # a driver that does not fit, say
                found[name] = [f"fails: {type(error).__name__}: {error}"]
    return found


def _torch_devices(torch: Any) -> list[str]:
    found = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    with contextlib.suppress(AttributeError):
        found += ["MPS"] if torch.backends.mps.is_available() else []
    return found


def _jax_devices(jax: Any) -> list[str]:
    return [str(each) for each in jax.devices() if each.platform != "cpu"]
