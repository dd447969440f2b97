"""Which kind of model a version that has been read is."""

from __future__ import annotations

from collections.abc import Sequence

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.spans import Hook
from asyncexec.service.models.decoupled_model import DecoupledModel
from asyncexec.service.models.files import ReadModel
from asyncexec.service.models.model import Model
from asyncexec.service.models.response_cache import ResponseCache
from asyncexec.service.models.sequence_model import SequenceModel


def make_model(name: str, read: ReadModel, cache: ResponseCache | None = None, hooks: Sequence[Hook] = ()) -> Model:
    """The model called *name* that was *read*, whose answers *cache* keeps; *hooks* are those of its sessions.

    Raises:
        InvalidArgumentError: its sources do not fit its inputs, or its answers cannot be kept.
    """
    graph, signature, config, labels = read.graph, read.signature, read.config, read.labels
    if config.response_cache.enable and (read.sequence is not None or config.model_transaction_policy.decoupled):
        raise InvalidArgumentError(f"model '{name}' has states or streams, so there is no response_cache for it")
    if read.sequence is not None:
        spec = read.sequence
        return SequenceModel(name, read.version, graph, signature, config, spec, labels=labels, hooks=hooks)
    if config.model_transaction_policy.decoupled:
        sources = read.sources
        return DecoupledModel(name, read.version, graph, signature, config, sources, labels=labels, hooks=hooks)
    return Model(name, read.version, graph, signature, config, labels=labels, cache=cache, hooks=hooks)
