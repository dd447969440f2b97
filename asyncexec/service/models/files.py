"""Models in files: ``NAME/config.pbtxt`` (or ``.json``) and ``NAME/VERSION/model.pb``, as in Triton's repositories."""

from __future__ import annotations

import runpy
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from asyncexec.framework.error_text import one_line
from asyncexec.framework.errors import InvalidArgumentError, NotFoundError
from asyncexec.graph.graph import Graph
from asyncexec.graph.node import Tensor
from asyncexec.models.build import build_graph, signatures_of
from asyncexec.models.formats import read_model as read_data
from asyncexec.models.model_data import InitStep, ModelData
from asyncexec.service.models.classes import Labels, labels_in
from asyncexec.service.models.config import check, complete, config_in, config_of, versions_to_serve
from asyncexec.service.models.decoupled_model import sources_of
from asyncexec.service.models.ensemble import is_ensemble
from asyncexec.service.models.sequence_config import SequenceSpec, sequence_spec
from asyncexec.service.models.signature import DEFAULT_SIGNATURE, PREDICT, Signature, signature_of
from asyncexec.session.workers import Cluster

_SAVED_MODEL: Final = "model.savedmodel"
_GRAPHS: Final = (_SAVED_MODEL, "model.onnx", "model.pnnx.param", "model.pb", "model.pbtxt", "model.json")
_PYTHON: Final = "graph.py"
_MOST_DIGITS: Final = 18  # of a version


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A graph that is to be served.

    >>> with ax.Graph() as graph:
    ...     x = ax.placeholder(ax.float32, [None], name="x")
    ...     y = ax.multiply(x, 2.0, name="y")
    >>> source = ax.service.ModelSource(graph, outputs={"doubled": y}, config={"max_batch_size": 8})

    Attributes:
        graph: what it computes.
        inputs: the tensors that clients send, by name; by default the placeholders of the graph.
        outputs: the tensors that clients get, by name; by default what nothing in the graph consumes.
        config: the fields of a ModelConfig, such as ``max_batch_size`` and ``dynamic_batching``.
        signature_name, method_name: what clients of TensorFlow Serving are told of the inputs and outputs.
        cluster: the workers that nodes of the graph ask for; open it around the service, in the same event loop.
        init_steps: the runs that make it ready, such as those that restore variables.
    """

    graph: Graph
    inputs: Mapping[str, Tensor[Any]] | None = None
    outputs: Mapping[str, Tensor[Any]] | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    signature_name: str = DEFAULT_SIGNATURE
    method_name: str = PREDICT
    cluster: Cluster | None = None
    init_steps: Sequence[InitStep] = ()


@dataclass(frozen=True, slots=True)
class ReadModel:
    """A version of a model that has been read."""

    version: str
    graph: Graph
    signature: Signature
    config: Any
    sequence: SequenceSpec | None = None
    sources: tuple[Tensor[Any], ...] = ()
    labels: Labels = field(default_factory=dict)
    cluster: Cluster | None = None
    init_steps: Sequence[InitStep] = ()

    @classmethod
    def of(cls, name: str, version: str, source: ModelSource, config: Any, folder: Path | None = None) -> ReadModel:
        """The model called *name* of *source*, in *folder*; InvalidArgumentError where *config* does not fit."""
        check(config, name)
        if is_ensemble(config):
            raise InvalidArgumentError(f"'{name}' is an ensemble, and a graph", hint="call the models in the graph")
        if folder is None and any(output.label_filename for output in config.output):
            raise InvalidArgumentError(f"model '{name}' has a 'label_filename', and no folder to find it in")
        graph = source.graph
        sequence = sequence_spec(graph, source.inputs or {}, source.outputs or {}, config, folder)
        hidden = frozenset() if sequence is None else sequence.hidden
        found = signature_of(graph, source.inputs, source.outputs, config, hidden)
        signature = replace(found, name=source.signature_name, method_name=source.method_name)
        full, sources = complete(config, name, signature), sources_of(graph, signature)
        if sources:
            if sequence is not None:
                raise InvalidArgumentError(f"model '{name}' has sources, so there are no sequences of its calls")
            full.model_transaction_policy.decoupled = True
        labels = {} if folder is None else labels_in(folder, config)
        return cls(version, graph, signature, full, sequence, sources, labels, source.cluster, source.init_steps)


@dataclass(frozen=True, slots=True)
class FailedVersion:
    """A version of a model that cannot be read, and why."""

    version: str
    error: BaseException


def model_folders(repository: Path) -> dict[str, Path]:
    """The folders of models in *repository*, by name; NotFoundError where it cannot be read."""
    try:
        return {path.name: path for path in sorted(repository.iterdir()) if _is_name(path.name) and path.is_dir()}
    except OSError as error:
        raise NotFoundError(f"there is no folder of models {repository}: {error.strerror}") from None


def _is_name(name: str) -> bool:
    """Whether a model can have *name*; a name that is not UTF-8 cannot be sent to clients."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return name[0] not in "._"


def read_source(name: str, source: ModelSource | Graph) -> ReadModel | FailedVersion:
    """The only version of the model called *name*, which is given in Python."""
    given = source if isinstance(source, ModelSource) else ModelSource(source)
    try:
        return ReadModel.of(name, "1", given, config_of(given.config, f"the config of {name!r}"))
    except Exception as error:
        return FailedVersion("1", error)


def read_model(folder: Path, config: object = None, *, allow_python: bool) -> Iterator[ReadModel | FailedVersion]:
    """The versions of the model in *folder* that are to be served, or why one cannot be.

    Args:
        config: its ModelConfig; by default that of the folder.
        allow_python: whether ``graph.py``, code of whoever runs the service, may be run.

    Raises:
        InvalidArgumentError, NotFoundError: it has no version, or its configuration is wrong.
    """
    if config is None:
        config = config_in(folder)
    check(config, folder.name)
    found = {int(path.name): path for path in folder.iterdir() if _is_version(path)}
    versions = versions_to_serve(config, found)
    if not versions:
        raise NotFoundError(f"at least one version must be available under the version policy of '{folder.name}'")
    for version in versions:
        yield _read_version(folder, version, config, found[version], allow_python=allow_python)


def _read_version(
    folder: Path, version: int, config: Any, path: Path, *, allow_python: bool
) -> ReadModel | FailedVersion:
    try:
        if is_ensemble(config):  # its graph is made of other models, when they are loaded
            return ReadModel(str(version), Graph(), Signature({}, {}), config, labels=labels_in(folder, config))
        source = _source_in(path, config.default_model_filename, allow_python=allow_python)
        return ReadModel.of(folder.name, str(version), source, config, folder)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # of a graph.py it may be any, also SystemExit
        return FailedVersion(str(version), error)


def fingerprint(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """What changes when a file in *folder* does."""
    found = []
    for path in sorted(folder.rglob("*")):
        try:
            status = path.stat()
        except OSError:  # it has just gone
            continue
        found.append((str(path), status.st_mtime_ns, status.st_size))
    return tuple(found)


def _is_version(path: Path) -> bool:
    name = path.name
    return path.is_dir() and name.isascii() and name.isdigit() and name[0] != "0" and len(name) <= _MOST_DIGITS


def _source_in(folder: Path, default: str, *, allow_python: bool) -> ModelSource:
    names = (default,) if default else (*_GRAPHS, _PYTHON)
    path = next((folder / name for name in names if (folder / name).exists()), None)
    if path is None:
        raise NotFoundError(f"there is no {' or '.join(names)} in {folder}")
    _check_kinds(path)
    if path.suffix == ".py":
        if not allow_python:
            raise InvalidArgumentError(f"{path} is Python code, which the service runs only with --allow-python")
        return _python_source(path)
    return _source_of(read_data(path))


def _check_kinds(path: Path) -> None:
    """Raise InvalidArgumentError where *path*, or what is in it, is a pipe, say, which waits for whoever reads it."""
    for each in (path, *path.rglob("*")):
        if each.exists() and not (each.is_file() or each.is_dir()):
            raise InvalidArgumentError(f"{each} is no regular file and no folder")


def _source_of(data: ModelData) -> ModelSource:
    graph = build_graph(data)
    if not data.signatures:
        return ModelSource(graph, init_steps=data.init_steps)
    signatures = signatures_of(data, graph)
    name = DEFAULT_SIGNATURE if DEFAULT_SIGNATURE in signatures else next(iter(signatures))
    chosen = signatures[name]
    return ModelSource(
        graph,
        {key: graph.tensor(info.name) for key, info in chosen.inputs.items()},
        {key: graph.tensor(info.name) for key, info in chosen.outputs.items()},
        signature_name=name,
        method_name=chosen.method_name,
        init_steps=data.init_steps,
    )


def _python_source(path: Path) -> ModelSource:
    """What ``model`` in *path* is, a ModelSource, or ``graph``, a Graph."""
    try:
        names = runpy.run_path(str(path))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # it may be any, also SystemExit
        raise InvalidArgumentError(f"{path}{_line_of(error, str(path))}: {one_line(error)}") from error
    source = names.get("model", names.get("graph"))
    if isinstance(source, Graph):
        return ModelSource(source)
    if not isinstance(source, ModelSource):
        raise InvalidArgumentError(f"{path} has no 'model', a ModelSource, and no 'graph', a Graph")
    return source


def _line_of(error: BaseException, file: str) -> str:
    """ ", line 7", which is the one of *file* that raised *error*, or that is no Python; "" where there is none."""
    if isinstance(error, SyntaxError) and error.filename == file:
        return f", line {error.lineno}"
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == file]
    return f", line {lines[-1]}" if lines else ""
