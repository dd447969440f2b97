"""``asyncexec worker``: a process that runs its part of the steps of others' sessions (``ax.cluster.connect``)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from pathlib import Path
from typing import Annotated, Final

import typer

import asyncexec as ax
from asyncexec.cli.daemon import LogFormat, LogLevel, allow_many_connections, check_pairs, log_as, read_tokens
from asyncexec.cli.feeds import parse_device_count
from asyncexec.cli.graph_source import import_modules
from asyncexec.cli.reporting import DebugOption, failures_reported
from asyncexec.distributed.worker_limits import WorkerLimits
from asyncexec.framework.errors import InvalidArgumentError

_LIMITS: Final = WorkerLimits()
_LOGGER: Final = logging.getLogger("asyncexec.worker")


def worker(
    listen: Annotated[
        str, typer.Option(metavar="ADDRESS", help="HOST:PORT, [IPv6]:PORT or unix:/PATH; port 0 for any.")
    ] = "127.0.0.1:7000",
    job: Annotated[str, typer.Option(help="The job that it is a task of.")] = "worker",
    task: Annotated[int, typer.Option(min=0, help="The number of the task.")] = 0,
    token_file: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="A file with the token that the cluster shares.")
    ] = None,
    tls_certificate: Annotated[
        Path | None,
        typer.Option(
            "--tls-cert", "--tls-certificate", exists=True, dir_okay=False, help="A certificate with its chain, in PEM."
        ),
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(exists=True, dir_okay=False, help="Its key, in PEM.")] = None,
    tls_ca: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="Who must have signed the certificates of clients, in PEM."),
    ] = None,
    device_count: Annotated[
        list[str] | None, typer.Option(metavar="TYPE=COUNT", help="How many devices of a type, such as CPU=2.")
    ] = None,
    allow_objects: Annotated[
        bool, typer.Option("--allow-objects", help="Run functions that clients name: any code, so trust them.")
    ] = False,
    modules: Annotated[
        list[str] | None, typer.Option("--import", metavar="MODULE", help="A module to import at the start.")
    ] = None,
    allow_op: Annotated[
        list[str] | None, typer.Option(metavar="OP", help="An op type that may reach outside the graph.")
    ] = None,
    shared: Annotated[
        bool, typer.Option("--shared", help="Sessions share variables, queues and tables by name.")
    ] = False,
    max_sessions: Annotated[int, typer.Option(min=1, help="Sessions at a time.")] = _LIMITS.max_sessions,
    max_graphs: Annotated[int, typer.Option(min=1, help="Graphs of a session.")] = _LIMITS.max_graphs,
    max_steps: Annotated[int, typer.Option(min=1, help="Steps of a session at a time.")] = _LIMITS.max_steps,
    max_early_bytes: Annotated[
        int, typer.Option(min=1, help="Bytes of values of a session's steps that have not begun.")
    ] = _LIMITS.max_early_bytes,
    max_queued_bytes: Annotated[
        int, typer.Option(min=1, help="Bytes that wait for a client or a worker that reads too slowly.")
    ] = _LIMITS.max_queued_bytes,
    drain_s: Annotated[float, typer.Option(min=0, help="Seconds that steps have to end after SIGTERM.")] = 30.0,
    log_format: Annotated[LogFormat, typer.Option(help="How lines of the log look.")] = LogFormat.TEXT,
    log_level: Annotated[LogLevel, typer.Option(help="What is logged at least.")] = LogLevel.INFO,
    debug: DebugOption = False,
) -> None:
    """Be a worker: run the nodes that sessions place on /job:JOB/task:TASK.

    For example: asyncexec worker --job worker --task 0 --listen 0.0.0.0:7000 --token-file token
    """
    log_as(log_format, log_level)
    say = _LOGGER.info if log_format is LogFormat.JSON else typer.echo
    devices = parse_device_count(device_count or ())
    with failures_reported(debug):
        check_pairs(
            ("--tls-cert", tls_certificate is not None, "--tls-key", tls_key is not None),
            ("--tls-key", tls_key is not None, "--tls-cert", tls_certificate is not None),
            ("--tls-ca", tls_ca is not None, "--tls-cert", tls_certificate is not None),
        )
        limits = WorkerLimits(max_sessions, max_graphs, max_steps, max_early_bytes, max_queued_bytes)
        tokens = read_tokens(token_file)
        if len(tokens) > 1:
            raise InvalidArgumentError(f"there are {len(tokens)} tokens in {token_file}, and a cluster shares one")
        tls = None
        if tls_certificate is not None:
            tls = ax.cluster.Tls.from_files(tls_certificate, tls_key, tls_ca)
        import_modules(modules or ())
        allow_many_connections()

        async def main() -> None:
            is_over = _ended_by_signal()
            async with ax.Worker(
                job,
                task,
                config=ax.SessionConfig(device_count=dict(devices) or {"CPU": 1}),
                token=tokens[0] if tokens else None,
                tls=tls,
                objects=allow_objects,
                allowed_ops=allow_op or (),
                shared=shared,
                limits=limits,
            ) as made:
                address = await made.listen(listen)
                say(f"{made.name} listens at {address}, incarnation {made.incarnation:x}")
                await is_over.wait()
                await made.drain(drain_s)

        ax.run(main)


def _ended_by_signal() -> asyncio.Event:
    """Is set by the first SIGTERM or Ctrl-C; the next one ends the process."""
    loop, is_over = asyncio.get_running_loop(), asyncio.Event()

    def tell() -> None:
        is_over.set()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)

    with contextlib.suppress(NotImplementedError):  # on Windows, Ctrl-C is a KeyboardInterrupt
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, tell)
    return is_over
