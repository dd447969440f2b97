"""Which kind of model a version that has been read is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.spans import Hook
from asyncexec.service.models.decoupled_model import DecoupledModel
from asyncexec.service.models.files import ReadModel
from asyncexec.service.models.model import Model
from asyncexec.service.models.model_workers import asks_for_workers
from asyncexec.service.models.response_cache import ResponseCache
from asyncexec.service.models.sequence_model import SequenceModel
from asyncexec.session.workers import Cluster


def make_model(
    name: str,
    read: ReadModel,
    cache: ResponseCache | None = None,
    hooks: Sequence[Hook] = (),
    cluster: Cluster | None = None,
) -> Model:
    """The model called *name* that was *read*, whose answers *cache* keeps; *hooks* are those of its sessions.

    Its nodes may ask for workers of *cluster*, if the model has no cluster of its own.

    Raises:
        InvalidArgumentError: its sources do not fit its inputs, or its answers cannot be kept.
    """
    graph, signature, config = read.graph, read.signature, read.config
    if read.cluster is not None:
        cluster = read.cluster
    elif cluster is not None and not asks_for_workers(graph):
        cluster = None
    options: dict[str, Any] = {"labels": read.labels, "hooks": hooks, "cluster": cluster}
    if config.response_cache.enable and (read.sequence is not None or config.model_transaction_policy.decoupled):
        raise InvalidArgumentError(f"model '{name}' has states or streams, so there is no response_cache for it")
    if read.sequence is not None:
        return SequenceModel(name, read.version, graph, signature, config, read.sequence, **options)
    if config.model_transaction_policy.decoupled:
        return DecoupledModel(name, read.version, graph, signature, config, read.sources, **options)
    return Model(name, read.version, graph, signature, config, cache=cache, **options)
