"""Which kind of model a version that has been read is."""

from __future__ import annotations

from asyncexec.service.decoupled_model import DecoupledModel
from asyncexec.service.model import Model
from asyncexec.service.model_files import ReadModel
from asyncexec.service.sequence_model import SequenceModel


def make_model(name: str, read: ReadModel) -> Model:
    """The model called *name* that was *read*; InvalidArgumentError where its sources do not fit its inputs."""
    graph, signature, config = read.graph, read.signature, read.config
    if read.sequence is not None:
        return SequenceModel(name, read.version, graph, signature, config, read.sequence, labels=read.labels)
    if config.model_transaction_policy.decoupled:
        return DecoupledModel(name, read.version, graph, signature, config, read.sources, labels=read.labels)
    return Model(name, read.version, graph, signature, config, labels=read.labels)
