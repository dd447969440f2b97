"""Clusters: workers in other processes and on other machines, for ``ax.Session(graph, cluster=...)``.

::

    async with ax.cluster.local(2) as cluster, ax.Session(graph, cluster=cluster) as session:
        await session.run(fetches)

Nodes go to a worker if they ask for it: ``with ax.device("/job:local/task:1"):``.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Final

from asyncexec.distributed.cluster import Cluster
from asyncexec.distributed.cluster_spec import ClusterSpec, Tasks
from asyncexec.distributed.launcher import NoLauncher
from asyncexec.distributed.launchers.dask import DaskLauncher
from asyncexec.distributed.launchers.local import LocalLauncher
from asyncexec.distributed.launchers.ray import RayLauncher
from asyncexec.distributed.transport.options import TransportOptions
from asyncexec.distributed.transport.security import Security, Tls
from asyncexec.distributed.worker_limits import WorkerLimits
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.session.session_config import SessionConfig

__all__ = ["Tls", "TransportOptions", "WorkerLimits", "connect", "dask", "local", "ray"]

_TOKEN_BYTES: Final = 32


def connect(
    spec: ClusterSpec | Mapping[str, Tasks],
    *,
    token: str | None = None,
    tls: Tls | None = None,
    objects: bool = False,
    reconnect_timeout_s: float = 30.0,
    options: TransportOptions | None = None,
) -> Cluster:
    """A cluster of workers that run already: by ``asyncexec worker``, or an ``ax.Worker``.

    >>> cluster = ax.cluster.connect({"worker": ["10.0.0.1:7000", "10.0.0.2:7000"]}, token="a secret of this cluster")

    Args:
        spec: where they listen.
        token: the secret that they share.
        tls: what connections over TCP are encrypted with (``ax.cluster.Tls.from_files``).
        objects: whether Python objects, and functions by name, travel.  The workers must be of the same program, and
            allow it.
        reconnect_timeout_s: how long steps wait for a worker that is lost before they fail.
        options: limits and times of connections.

    Raises:
        InvalidArgumentError: *spec* is none.  The errors of connecting come from ``async with``: UnavailableError if a
            worker cannot be reached, UnauthenticatedError if the tokens differ.
    """
    found = spec if isinstance(spec, ClusterSpec) else ClusterSpec(spec)
    return Cluster(
        NoLauncher(found),
        security=Security(token, tls),
        options=replace(options or TransportOptions(), objects=objects),
        reconnect_timeout_s=reconnect_timeout_s,
    )


def local(
    num_workers: int,
    *,
    job: str = "local",
    config: SessionConfig | None = None,
    objects: bool = True,
    allowed_ops: Collection[str] = (),
    shared: bool = False,
    start_timeout_s: float = 60.0,
    grace_s: float = 5.0,
    reconnect_timeout_s: float = 30.0,
    options: TransportOptions | None = None,
) -> Cluster:
    """A cluster of processes on this machine, each with an interpreter, and so a GIL, of its own.

    ``with ax.device("/job:local/task:1"):`` places nodes on the second.  The processes import the program anew: a
    script starts its work under ``if __name__ == "__main__":``.  They end with the cluster, and with this process.
    One that dies is started again.

    >>> cluster = ax.cluster.local(2)

    Args:
        num_workers: how many processes.
        job: the job that they are the tasks of.
        config: how they run steps, and how many devices each has.
        objects: whether Python objects, and functions by name, travel.
        allowed_ops: op types that may reach outside the graph; with *objects*, all may.
        shared: whether sessions share variables, queues and tables by name; else each has its own.
        start_timeout_s: how long a process may take to start.
        grace_s: how long a process may take to end; then it is killed.
        reconnect_timeout_s: how long steps wait for a worker that is lost before they fail.
        options: limits and times of connections.

    Raises:
        InvalidArgumentError: *num_workers* is below 1, or *job* cannot be the name of one.  The errors of starting come
            from ``async with``: UnavailableError if a process ends at once, with what it wrote to standard error;
            FailedPreconditionError in a worker process that imports the program.
    """
    _check(job, num_workers)
    worker, security, options = _settings(config, objects, allowed_ops, shared, options)
    launcher = LocalLauncher(job, num_workers, worker, start_timeout_s=start_timeout_s, grace_s=grace_s)
    return Cluster(launcher, security=security, options=options, reconnect_timeout_s=reconnect_timeout_s)


def ray(
    num_workers: int,
    *,
    job: str = "worker",
    resources_per_worker: Mapping[str, float] | None = None,
    placement_strategy: str = "PACK",
    runtime_env: Mapping[str, object] | None = None,
    max_restarts: int = -1,
    config: SessionConfig | None = None,
    objects: bool = True,
    allowed_ops: Collection[str] = (),
    shared: bool = False,
    token: str | None = None,
    tls: Tls | None = None,
    start_timeout_s: float = 60.0,
    reconnect_timeout_s: float = 30.0,
    options: TransportOptions | None = None,
) -> Cluster:
    """A cluster of actors of Ray, which places them on its nodes and starts those again that die.

    It needs the extra ``ray``.  Where Ray has not been initialized, ``ray.init()`` is called.

    >>> cluster = ax.cluster.ray(2, resources_per_worker={"CPU": 1, "GPU": 1})  # doctest: +SKIP

    Args:
        num_workers: how many actors.
        job: the job that they are the tasks of.
        resources_per_worker: what each needs of Ray; one CPU by default.
        placement_strategy: how Ray places them: ``"PACK"``, ``"SPREAD"``, ``"STRICT_PACK"`` or ``"STRICT_SPREAD"``.
        runtime_env: Ray's, of the actors: packages, files, environment variables.
        max_restarts: how often Ray starts each again; -1 for always.
        config, objects, allowed_ops, shared, reconnect_timeout_s, options: as of ``local``.
        token: the secret that client and workers share; a random one by default.
        tls: what their connections are encrypted with (``ax.cluster.Tls.from_files``).  Each worker reads the files of
            its own machine, at the same paths.
        start_timeout_s: how long Ray may take to start one.

    Raises:
        InvalidArgumentError: *num_workers* is below 1, or *job* cannot be the name of one.
        MissingExtraError: Ray is not installed.  From ``async with``: UnavailableError if Ray has no room for the
            actors, or cannot start them.
    """
    _check(job, num_workers)
    worker, security, options = _settings(config, objects, allowed_ops, shared, options, token, tls)
    launcher = RayLauncher(
        job,
        num_workers,
        worker,
        resources={"CPU": 1.0} if resources_per_worker is None else resources_per_worker,
        strategy=placement_strategy,
        runtime_env=runtime_env,
        max_restarts=max_restarts,
        start_timeout_s=start_timeout_s,
    )
    return Cluster(launcher, security=security, options=options, reconnect_timeout_s=reconnect_timeout_s)


def dask(
    client: object,
    num_workers: int | None = None,
    *,
    job: str = "worker",
    config: SessionConfig | None = None,
    objects: bool = True,
    allowed_ops: Collection[str] = (),
    shared: bool = False,
    token: str | None = None,
    tls: Tls | None = None,
    start_timeout_s: float = 60.0,
    reconnect_timeout_s: float = 30.0,
    options: TransportOptions | None = None,
) -> Cluster:
    """A cluster in the workers of dask.distributed, one in each, which dask starts again if they die.

    It needs the extra ``dask``.

    >>> cluster = ax.cluster.dask(distributed.Client("tcp://10.0.0.1:8786"))  # doctest: +SKIP

    Args:
        client: of dask.distributed, asynchronous or not; it stays open for as long as the cluster is.
        num_workers: how many workers; by default as many as dask has.
        job: the job that they are the tasks of.
        config, objects, allowed_ops, shared, reconnect_timeout_s, options: as of ``local``.
        token: the secret that client and workers share; a random one by default.
        tls: what their connections are encrypted with (``ax.cluster.Tls.from_files``).  Each worker reads the files of
            its own machine, at the same paths.
        start_timeout_s: how long dask may take to have a worker for each.

    Raises:
        InvalidArgumentError: *num_workers* is below 1, or *job* cannot be the name of one.
        MissingExtraError: dask.distributed is not installed.  From ``async with``: UnavailableError if dask has too few
            workers, or they have no asyncexec.
    """
    _check(job, 1 if num_workers is None else num_workers)
    worker, security, options = _settings(config, objects, allowed_ops, shared, options, token, tls)
    launcher = DaskLauncher(client, job, num_workers, worker, start_timeout_s=start_timeout_s)
    return Cluster(launcher, security=security, options=options, reconnect_timeout_s=reconnect_timeout_s)


def _settings(
    config: SessionConfig | None,
    objects: bool,
    allowed_ops: Collection[str],
    shared: bool,
    options: TransportOptions | None,
    token: str | None = None,
    tls: Tls | None = None,
) -> tuple[dict[str, Any], Security, TransportOptions]:
    """The arguments of the workers that an engine starts, which share a token, and what the cluster takes."""
    options = replace(options or TransportOptions(), objects=objects)
    security = Security(secrets.token_hex(_TOKEN_BYTES) if token is None else token, tls)
    worker = {
        "config": config,
        "token": security.token,
        "tls": security.tls,
        "objects": objects,
        "allowed_ops": tuple(allowed_ops),
        "shared": shared,
        "options": options,
    }
    return worker, security, options


def _check(job: str, num_workers: int) -> None:
    """InvalidArgumentError unless there can be so many workers of *job*."""
    if num_workers < 1:
        raise InvalidArgumentError(f"num_workers must be 1 or more, not {num_workers!r}")
    ClusterSpec({job: ["somewhere"]})
