"""What there is to be said of a machine: what it has, what is in the way, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from asyncexec.cli.machine import ENVIRONMENT, Machine

_MIB: Final = 2**20
LEAST_SHARED_MEMORY: Final = 256 * _MIB
LEAST_OPEN_FILES: Final = 4096


class Level(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    NOTE = "note"
    COSTLY = "costly"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        topic: what it is.
        found: what is so.
        advice: what to do; "" where nothing is.
    """

    topic: str
    found: str
    level: Level = Level.OK
    advice: str = ""


def findings(machine: Machine) -> list[Finding]:
    """All that there is to be said of *machine*."""
    return [
        *_python(machine),
        *_linear_algebra(machine),
        *_cores(machine),
        *_limits(machine),
        *_devices(machine),
        *_extras(machine),
    ]


def _python(machine: Machine) -> Iterator[Finding]:
    yield Finding("asyncexec", machine.asyncexec)
    yield Finding("Python", f"{machine.python}, {machine.system}")
    if machine.free_threaded and machine.gil_enabled:
        advice = "an extension module took the GIL back: set PYTHON_GIL=0, if all that you import allows that"
        yield Finding("GIL", "on, though this Python is free-threaded", Level.NOTE, advice)
    else:
        yield Finding("GIL", "off (free-threaded)" if machine.free_threaded else "on")
    if machine.uvloop is None:
        yield Finding("uvloop", "not installed: asyncio's own loop runs", Level.NOTE, "pip install uvloop")
    else:
        yield Finding("uvloop", machine.uvloop)
    for name in ("PYTHONASYNCIODEBUG", "PYTHONDEVMODE"):
        if machine.environment.get(name, "") not in ("", "0"):
            told = f"{name}={machine.environment[name]}"
            yield Finding(name, told, Level.COSTLY, f"asyncio's debug mode makes steps slow: unset {name}")


def _linear_algebra(machine: Machine) -> Iterator[Finding]:
    yield Finding("numpy", machine.numpy)
    if not machine.blas:
        advice = 'pip install "asyncexec[ops]": threadpoolctl finds the BLAS and bounds its threads'
        yield Finding("BLAS", "not known", Level.NOTE, advice)
    for blas in machine.blas:
        kernels = f", kernels for {blas.kernels}" if blas.kernels else ""
        yield Finding("BLAS", f"{blas.name} {blas.version}{kernels}, {blas.threads} threads")
    if machine.slow_blas is not None:
        yield Finding("BLAS kernels", "for an older processor", Level.COSTLY, machine.slow_blas)
    for name in ENVIRONMENT:
        value = machine.environment.get(name)
        if value is None:
            continue
        if name == "OPENBLAS_CORETYPE":
            yield Finding(name, value, Level.NOTE, "it is used even where the processor lacks these instructions")
        elif name.endswith("_NUM_THREADS"):
            yield _threads(name, value, machine)


def _threads(name: str, value: str, machine: Machine) -> Finding:
    usable = _usable(machine)
    if not value.isdecimal() or not int(value):
        return Finding(name, value, Level.NOTE, f"it is no number of threads: set {name}={usable}, or unset it")
    if int(value) > usable:
        advice = f"threads wait for each other: set {name}={usable}, or unset it"
        return Finding(name, f"{value}, with {usable} cores to use", Level.COSTLY, advice)
    if int(value) < usable:
        return Finding(name, f"{value}, with {usable} cores to use", Level.NOTE, "large products use no more threads")
    return Finding(name, value)


def _usable(machine: Machine) -> int:
    """Whole cores that this process may keep busy."""
    return max(1, min(machine.usable_cores, round(machine.core_limit or machine.usable_cores)))


def _cores(machine: Machine) -> Iterator[Finding]:
    told = f"{machine.usable_cores} of {machine.cores}"
    if machine.core_limit is None:
        yield Finding("cores", told)
    elif round(machine.core_limit) >= machine.usable_cores:
        yield Finding("cores", f"{told}, limit {machine.core_limit:g}")
    else:
        count = _usable(machine)
        advice = (
            "threads that use up the limit are stopped for a while: bind the process to cores (docker --cpuset-cpus,"
            f" taskset), or set OPENBLAS_NUM_THREADS={count} and SessionConfig(num_worker_threads={count})"
        )
        yield Finding("cores", f"{told}, limited to {machine.core_limit:g} at a time", Level.COSTLY, advice)


def _limits(machine: Machine) -> Iterator[Finding]:
    if machine.memory_limit_bytes is not None:
        advice = (
            "SessionConfig(memory_limit=...) refuses a step that would take more, before the system ends the process"
        )
        yield Finding("memory", f"limited to {machine.memory_limit_bytes // _MIB:,} MiB", Level.NOTE, advice)
    free = machine.shared_memory_bytes
    if free is not None and free < LEAST_SHARED_MEMORY:
        advice = "arrays go to worker processes through /dev/shm: docker run --shm-size=1g"
        yield Finding("shared memory", f"{free // _MIB:,} MiB free", Level.COSTLY, advice)
    elif free is not None:
        yield Finding("shared memory", f"{free // _MIB:,} MiB free")
    files = machine.open_files
    if files is not None and files < LEAST_OPEN_FILES:
        most = "" if machine.open_files_most is None else f" (at most {machine.open_files_most:,})"
        can = machine.open_files_most is None or machine.open_files_most >= LEAST_OPEN_FILES
        advice = f"a service needs one for each connection: ulimit -n {LEAST_OPEN_FILES}"
        advice += "; asyncexec serve does so itself" if can else "; the system's administrator must allow it"
        yield Finding("open files", f"{files:,}{most}", Level.NOTE if can else Level.COSTLY, advice)
    elif files is not None:
        yield Finding("open files", f"{files:,}")


def _devices(machine: Machine) -> Iterator[Finding]:
    for kind, names in machine.devices.items():
        fails = any(name.startswith("fails: ") for name in names)
        advice = f"{kind} is installed and does not work here: reinstall it, or its driver" if fails else ""
        told = ", ".join(names) or "no accelerator"
        yield Finding(f"devices: {kind}", told, Level.COSTLY if fails else Level.OK, advice)


def _extras(machine: Machine) -> Iterator[Finding]:
    for extra, modules in sorted(machine.missing.items()):
        told = f"not installed ({', '.join(modules)})"
        yield Finding(f"extra {extra}", told, Level.NOTE, f'pip install "asyncexec[{extra}]"')
