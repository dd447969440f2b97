"""``asyncexec serve``: serves a folder of models over HTTP and gRPC."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import os
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

import asyncexec as ax
from asyncexec.cli.daemon import LogFormat, LogLevel, allow_many_connections, check_pairs, log_as, read_tokens
from asyncexec.cli.reporting import DebugOption, failures_reported
from asyncexec.framework.lazy_module import LazyModule
from asyncexec.framework.memory_budget import MemoryBudget
from asyncexec.process.blas_threads import limit_blas_threads
from asyncexec.process.gc_pause import freeze_what_is_loaded
from asyncexec.service.observing.log_lines import ACCESS

_cluster = LazyModule("asyncexec.cli.cluster_option")
_demo = LazyModule("asyncexec.cli.serve_demo.models")

if TYPE_CHECKING:
    from asyncexec.service.server import Ports


_LOGGER: Final = logging.getLogger("asyncexec.service")
_IPV4: Final = 4


class ModelControl(StrEnum):
    """What is loaded when."""

    NONE = "none"
    EXPLICIT = "explicit"
    POLL = "poll"


def serve(
    repository: Annotated[
        Path | None,
        typer.Argument(exists=True, file_okay=False, help="A folder of models: NAME/VERSION/model.pb, as Triton's."),
    ] = None,
    demo: Annotated[bool, typer.Option("--demo", help="Serve three models of the package, with some load.")] = False,
    page: Annotated[bool, typer.Option("--page/--no-page", help="Whether there is the live page at /.")] = True,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="The address to listen to.")] = "127.0.0.1",
    http_port: Annotated[int, typer.Option(min=0, max=65535, help="The port of HTTP; 0 for any.")] = 8000,
    grpc_port: Annotated[int, typer.Option(min=-1, max=65535, help="The port of gRPC; 0 for any, -1 for none.")] = 8001,
    model_control: Annotated[
        ModelControl,
        typer.Option(
            help="none: all models, once; explicit: those that are asked for; poll: all, again when they change."
        ),
    ] = ModelControl.NONE,
    load_model: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="With explicit control: a model to load at the start; * for all."),
    ] = None,
    poll_s: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks at the files.")] = 15.0,
    allow_python: Annotated[
        bool, typer.Option("--allow-python", help="Run the graph.py of models: it is code of yours.")
    ] = False,
    cache_mb: Annotated[
        int, typer.Option(min=0, help="MB of answers to keep, of models with response_cache in their config.")
    ] = 64,
    memory_limit_mb: Annotated[
        int | None, typer.Option(min=1, help="The most MB that the arrays of one run of a model may take.")
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|JOB=ADDRESSES",
            help='Workers that nodes may ask for: worker=host:port,..., or a file of {"worker": ["host:port"]}.',
        ),
    ] = None,
    cluster_token_file: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="A file with the token that the cluster shares.")
    ] = None,
    cluster_tls_ca: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="Who must have signed the certificates of workers, in PEM."),
    ] = None,
    cluster_tls_cert: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="The certificate that workers are shown, in PEM.")
    ] = None,
    cluster_tls_key: Annotated[Path | None, typer.Option(exists=True, dir_okay=False, help="Its key, in PEM.")] = None,
    cluster_objects: Annotated[
        bool, typer.Option("--cluster-objects", help="Let functions, by name, and Python objects travel to workers.")
    ] = False,
    token_file: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="A file with a bearer token in each line; callers need one."),
    ] = None,
    tls_certificate: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="A certificate with its chain, in PEM.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(exists=True, dir_okay=False, help="Its key, in PEM.")] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Without tokens: a name by which browsers may ask, as that of a proxy."),
    ] = None,
    max_body_mb: Annotated[int, typer.Option(min=1, help="The largest request in MB, decompressed.")] = 64,
    drain_s: Annotated[float, typer.Option(min=0, help="Seconds that requests have to end after SIGTERM.")] = 30.0,
    blas_threads: Annotated[
        int,
        typer.Option(min=0, help="Threads that BLAS takes for one operation; 0: its default."),
    ] = 1,
    tensorflow_master: Annotated[
        bool, typer.Option("--tensorflow-master", help="Over gRPC, run the graphs of TensorFlow's own clients.")
    ] = False,
    tensorflow_master_files: Annotated[
        bool, typer.Option("--tensorflow-master-files", help="Let these graphs read and write files.")
    ] = False,
    shared_memory: Annotated[
        bool, typer.Option("--shared-memory", help="Let local clients put tensors into shared memory (/dev/shm).")
    ] = False,
    log_format: Annotated[LogFormat, typer.Option(help="How lines of the log look.")] = LogFormat.TEXT,
    log_level: Annotated[LogLevel, typer.Option(help="What is logged at least.")] = LogLevel.INFO,
    access_log: Annotated[bool, typer.Option("--access-log", help="Log a line for each request.")] = False,
    trace_file: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="Where timelines of requests are written, which clients ask to be traced."),
    ] = None,
    debug: DebugOption = False,
) -> None:
    """Serve models to clients of the Open Inference Protocol, such as Triton's and KServe's.

    For example: asyncexec serve models --http-port 8000 --grpc-port 8001
    """
    _log_as(log_format, log_level, logs_calls=access_log)
    say = _LOGGER.info if log_format is LogFormat.JSON else typer.echo
    with failures_reported(debug):
        if demo == (repository is not None):
            told = "serve either a folder of models or --demo" if demo else "a folder of models, or --demo, is needed"
            raise typer.BadParameter(told, param_hint="'repository'")
        check_pairs(
            ("--tls-certificate", tls_certificate is not None, "--tls-key", tls_key is not None),
            ("--tls-key", tls_key is not None, "--tls-certificate", tls_certificate is not None),
            ("--load-model", bool(load_model), "--model-control explicit", model_control is ModelControl.EXPLICIT),
            ("--cluster", cluster is not None, "a folder of models", not demo),
            ("--cluster-token-file", cluster_token_file is not None, "--cluster", cluster is not None),
            ("--cluster-tls-ca", cluster_tls_ca is not None, "--cluster", cluster is not None),
            ("--cluster-tls-cert", cluster_tls_cert is not None, "--cluster-tls-key", cluster_tls_key is not None),
            ("--cluster-tls-cert", cluster_tls_cert is not None, "--cluster", cluster is not None),
            ("--cluster-tls-key", cluster_tls_key is not None, "--cluster-tls-cert", cluster_tls_cert is not None),
            ("--cluster-objects", cluster_objects, "--cluster", cluster is not None),
            ("--tensorflow-master", tensorflow_master, "a port of gRPC", grpc_port >= 0),
            ("--tensorflow-master-files", tensorflow_master_files, "--tensorflow-master", tensorflow_master),
        )
        if blas_threads:
            limit_blas_threads(blas_threads)
        service = ax.service
        workers = None
        if cluster is not None:
            tls_files = cluster_tls_cert, cluster_tls_key, cluster_tls_ca
            workers = _cluster.make_cluster(cluster, cluster_token_file, tls_files, objects=cluster_objects)
        models = (
            _demo.demo_repository()
            if demo
            else service.ModelRepository(
                repository,
                cluster=workers,
                control=model_control.value,
                load_at_start=tuple(load_model or ()),
                poll_s=poll_s,
                allow_python=allow_python,
                cache_bytes=cache_mb * 2**20,
            )
        )
        tls = None
        if tls_certificate is not None and tls_key is not None:
            tls = service.Tls(tls_certificate, tls_key)
        tokens = read_tokens(token_file)
        allow_many_connections()

        async def main() -> None:
            async with workers or contextlib.nullcontext():
                await run()

        async def run() -> None:
            await service.serve(
                models,
                on_start=lambda ports: _tell(models, ports, page, say, is_encrypted=tls is not None),
                host=host,
                http_port=http_port,
                grpc_port=None if grpc_port < 0 else grpc_port,
                tls=tls,
                tokens=tokens,
                max_body_bytes=max_body_mb * 2**20,
                drain_s=drain_s,
                page=page,
                tensorflow_master=tensorflow_master,
                tensorflow_master_files=tensorflow_master_files,
                shared_memory=shared_memory,
                hooks=() if memory_limit_mb is None else (MemoryBudget(memory_limit_mb * 2**20),),
                trace_file=trace_file,
                allowed_hosts=allowed_host or (),
            )

        ax.run(main)


def _tell(models: Any, ports: Ports, has_page: bool, say: Callable[[str], None], *, is_encrypted: bool) -> None:
    """Say what is served where."""
    for state in models.index():
        version = f" version {state.version}" if state.version else ""
        reason = f": {state.reason}" if state.reason else ""
        say(f"{state.name}{version} {state.state or 'not loaded'}{reason}")
    grpc = "" if ports.grpc is None else f", gRPC on {ports.host}:{ports.grpc}"
    say(f"HTTP on {ports.host}:{ports.http}{grpc}")
    freeze_what_is_loaded()
    if has_page:
        say(f"live page: {'https' if is_encrypted else 'http'}://{_reached_by(ports.host)}:{ports.http}/")


def _reached_by(host: str) -> str:
    """What a URL calls *host*, where the service listens: "localhost" where that is every address."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.is_unspecified:
        return "localhost"
    return host if address.version == _IPV4 else f"[{host}]"


def _log_as(log_format: LogFormat, level: LogLevel, *, logs_calls: bool) -> None:
    if log_format is LogFormat.JSON:  # before grpc is imported, which writes lines of its own to standard error
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    log_as(log_format, level)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    ACCESS.setLevel(logging.INFO if logs_calls else logging.WARNING)
