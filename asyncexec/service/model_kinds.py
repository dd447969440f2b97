"""Which kind of model a version that has been read is."""

from __future__ import annotations

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.service.decoupled_model import DecoupledModel
from asyncexec.service.model import Model
from asyncexec.service.model_files import ReadModel
from asyncexec.service.response_cache import ResponseCache
from asyncexec.service.sequence_model import SequenceModel


def make_model(name: str, read: ReadModel, cache: ResponseCache | None = None) -> Model:
    """The model called *name* that was *read*, whose answers *cache* keeps.

    Raises:
        InvalidArgumentError: its sources do not fit its inputs, or its answers cannot be kept.
    """
    graph, signature, config = read.graph, read.signature, read.config
    if config.response_cache.enable and (read.sequence is not None or config.model_transaction_policy.decoupled):
        raise InvalidArgumentError(f"model '{name}' has states or streams, so there is no response_cache for it")
    if read.sequence is not None:
        return SequenceModel(name, read.version, graph, signature, config, read.sequence, labels=read.labels)
    if config.model_transaction_policy.decoupled:
        return DecoupledModel(name, read.version, graph, signature, config, read.sources, labels=read.labels)
    return Model(name, read.version, graph, signature, config, labels=read.labels, cache=cache)
