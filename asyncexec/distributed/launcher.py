"""Launcher: starts the workers of a cluster, and starts them again when they end."""

from __future__ import annotations

from typing import Protocol

from asyncexec.distributed.cluster_spec import ClusterSpec


class Launcher(Protocol):
    """What an engine does for a cluster.  All calls are made in the event loop of the cluster."""

    async def start(self) -> ClusterSpec:
        """Start all workers; where they listen.

        Raises:
            OpError: one could not be started.  None runs then.
        """
        ...

    async def revive(self, worker: str) -> str:
        """See to it that *worker* runs, which could not be reached; where it listens now.

        Raises:
            UnavailableError: it does not run, and will not.
        """
        ...

    async def close(self) -> None:
        """End all workers that were started here."""
        ...


class NoLauncher:
    """For workers that somebody else starts, at the addresses in *spec*."""

    def __init__(self, spec: ClusterSpec) -> None:
        self._addresses = dict(spec)
        self._spec = spec

    async def start(self) -> ClusterSpec:
        return self._spec

    async def revive(self, worker: str) -> str:
        return self._addresses[worker]

    async def close(self) -> None:
        return
