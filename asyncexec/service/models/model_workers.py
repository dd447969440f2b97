"""The workers that a model runs on: which ones its nodes ask for, and whether they are there."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from asyncexec.framework.device_name import DeviceName, parse_device_name
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.graph.graph import Graph
from asyncexec.session.workers import Cluster

_CLIENT_JOB = "localhost"


def asks_for_workers(graph: Graph) -> bool:
    """Whether a node of *graph* asks for a worker."""
    return bool(_asked_for(graph))


class ModelWorkers:
    """The workers of *cluster* that nodes of *graph* ask for; none without a cluster."""

    def __init__(self, graph: Graph, cluster: Cluster | None) -> None:
        self._cluster = cluster
        self._asked_for = frozenset[DeviceName]() if cluster is None else _asked_for(graph)

    @property
    def cluster(self) -> Cluster | None:
        """The cluster, if its workers are asked for."""
        return self._cluster if self._asked_for else None

    @property
    def unready_reason(self) -> str | None:
        """Which of them cannot be reached; None where all can."""
        connected = {} if self.cluster is None else self.cluster.connected()
        chosen = {_chosen(wanted, connected) for wanted in self._asked_for}
        lost = sorted(name for name in chosen if name is not None and not connected[name])
        if not lost:
            return None
        return f"{', '.join(lost)} {'is' if len(lost) == 1 else 'are'} not connected"


def _chosen(wanted: DeviceName, workers: Iterable[str]) -> str | None:
    """The one of *workers* that nodes are placed on that ask for *wanted*: the first that fits."""
    return next((name for name in workers if wanted.accepts(parse_device_name(name))), None)


def _asked_for(graph: Graph) -> frozenset[DeviceName]:
    devices = {node.device for node in graph.operations}
    devices.update(node.device for function in graph.functions.values() for node in function.node_def)
    found: set[DeviceName] = set()
    for device in devices:
        with suppress(InvalidArgumentError):  # a run tells of it
            found.add(parse_device_name(device).address_space)
    return frozenset(each for each in found if each.job not in (None, _CLIENT_JOB))
