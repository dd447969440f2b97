"""Model and ``load_model``: a model in a file as something to call."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Generator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Self

from asyncexec.framework.errors import InvalidArgumentError, NotFoundError
from asyncexec.framework.graph_def import GraphDef
from asyncexec.framework.spans import Hook
from asyncexec.graph.graph import Graph
from asyncexec.importers.saved_model import SignatureDef, TensorInfo
from asyncexec.models.build import DEFAULT_SIGNATURE, build_graph, initialize, signatures_of
from asyncexec.models.formats import read_model
from asyncexec.models.freeze import frozen
from asyncexec.models.model_data import ModelData
from asyncexec.process.gil_switches import quick_switches
from asyncexec.process.onnx_session import has_onnx_runtime, onnx_runtime
from asyncexec.session.direct_session import Session
from asyncexec.session.session_config import SessionConfig


class ModelSignature:
    """A way to call a model: ``await signature(x=array)`` gives the outputs by name.

    Attributes:
        name: its name in the model.
        inputs: the tensors that it takes, by the names of the keywords.
        outputs: the tensors that it gives, by name.
        method_name: what kind of signature it is to clients of TensorFlow Serving.
    """

    def __init__(self, model: Model, name: str, signature: SignatureDef) -> None:
        self.name: str = name
        self.inputs: Mapping[str, TensorInfo] = signature.inputs
        self.outputs: Mapping[str, TensorInfo] = signature.outputs
        self.method_name: str = signature.method_name
        self._defaults = signature.defaults
        self._model = model

    async def __call__(self, /, **inputs: object) -> dict[str, Any]:
        """Run the model on *inputs*, in its own session.

        Returns:
            The values of the outputs by name, as ``Session.run`` gives them.

        Raises:
            InvalidArgumentError: inputs are missing or unknown, all of which are named.
            OpError: as of ``Session.run``; at the first call, also what keeps the model from being ready.
        """
        graph = self._model.graph
        given = {**self._defaults, **inputs}
        missing = [
            name
            for name, info in self.inputs.items()
            if name not in given and graph.tensor(info.name).op.type != "PlaceholderWithDefault"
        ]
        unknown = [name for name in inputs if name not in self.inputs]
        if missing or unknown:
            told = [f"{what} {', '.join(names)}" for what, names in (("needs", missing), ("has no", unknown)) if names]
            raise InvalidArgumentError(
                f"signature {self.name!r} {' and '.join(told)}", hint=f"it takes {', '.join(self.inputs) or 'nothing'}"
            )
        session = await self._model.ready()
        feeds = {info.name: given[name] for name, info in self.inputs.items() if name in given}
        found: dict[str, object] = await session.run({name: info.name for name, info in self.outputs.items()}, feeds)
        return found

    def __repr__(self) -> str:
        return f"<ax.ModelSignature {self.name!r}: {', '.join(self.inputs)} -> {', '.join(self.outputs)}>"


class Model:
    """A model in a file; made by ``ax.load_model``.

    >>> with ax.Graph() as graph:
    ...     y = ax.negative(ax.placeholder(ax.int32, [], name="x"), name="y")
    >>> ax.save_graph_def(graph.as_graph_def(), "graph.json")
    >>> model = ax.load_model("graph.json")
    >>> list(model.signatures), model.graph["y:0"].dtype
    (['serving_default'], asyncexec.int32)

    The file is read when the model is first needed: on a thread by ``async with`` and ``await``, else at once.  Its own
    session is made, and its variables are restored, at the first call.

    Raises:
        OpError: as of ``ax.load_model``, when the file is read.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        config: SessionConfig | None = None,
        *,
        hooks: Sequence[Hook] = (),
        allowed_ops: Collection[str] = (),
    ) -> None:
        self.path: Path = Path(path)
        self._config = config
        self._hooks = hooks
        self._allowed_ops = allowed_ops
        self._reading = threading.Lock()
        self._read: tuple[ModelData, Graph, Mapping[str, ModelSignature]] | None = None
        self._session: Session | None = None
        self._is_ready = False
        self._starting = asyncio.Lock()

    def _parts(self) -> tuple[ModelData, Graph, Mapping[str, ModelSignature]]:
        """What has been read; it is read now if it has not been."""
        if self._read is None:
            with self._reading, quick_switches():
                if self._read is None:
                    data = read_model(self.path)
                    graph = build_graph(data, allowed_ops=self._allowed_ops)
                    found = {
                        name: ModelSignature(self, name, each) for name, each in signatures_of(data, graph).items()
                    }
                    self._read = data, graph, found
        return self._read

    @property
    def graph(self) -> Graph:
        """What the model computes, for sessions of your own: see ``initialize``."""
        return self._parts()[1]

    @property
    def signatures(self) -> Mapping[str, ModelSignature]:
        """The ways to call the model by name; of a file without signatures "serving_default" alone."""
        return self._parts()[2]

    async def load(self) -> Self:
        """Read the file on a thread, if it has not been read; ``await model`` does the same."""
        if self._read is None:
            await asyncio.to_thread(self._parts)
        return self

    def __await__(self) -> Generator[Any, None, Self]:
        return self.load().__await__()

    async def initialize(self, session: Session) -> None:
        """Make *session*, one of your own on ``model.graph``, ready: variables are restored and tables filled.

        Raises:
            InvalidArgumentError: the session is of another graph, or a variable does not fit the checkpoint.
            NotFoundError, DataLossError: the checkpoint lacks variables, or is damaged.
        """
        await self.load()
        data, graph, _ = self._parts()
        if session.graph is not graph:
            raise InvalidArgumentError("this session runs another graph", hint="make it by ax.Session(model.graph)")
        await initialize(session, data.init_steps)

    async def freeze(self, signature: str = DEFAULT_SIGNATURE) -> GraphDef:
        """One *signature* of the model as a GraphDef that needs no other file, as ``asyncexec convert`` writes it.

        Functions, branches and loops are written out as plain nodes, and variables are constants, with the values that
        the model's own session has now.  The nodes of inputs and outputs are called by their names in the signature.

        >>> with ax.Graph() as graph:
        ...     y = ax.multiply(ax.placeholder(ax.int32, [], name="x"), 2, name="y")
        >>> ax.save_graph_def(graph.as_graph_def(), "double.json")
        >>> async def main():
        ...     async with ax.load_model("double.json") as model:
        ...         return [node.name for node in (await model.freeze()).node]
        >>> ax.run(main)
        ['x', 'Mul/y', 'y_1', 'y']

        Raises:
            NotFoundError: the model has no such signature.
            UnimplementedError: nodes of it change variables or use tables; all of them are named.
            FailedPreconditionError: variables have no value; all of them are named.
        """
        session = await self.ready()
        data, graph, _ = self._parts()
        found = signatures_of(data, graph)
        if signature not in found:
            raise NotFoundError(f"the model has no signature {signature!r}", hint=f"it has {', '.join(found)}")
        return await asyncio.to_thread(frozen, graph, found[signature], session.values_of)

    async def ready(self) -> Session:
        """The model's own session, with variables restored and tables filled."""
        if self._session is None or not self._is_ready:
            await self.load()
            async with self._starting:
                if self._session is None:
                    self._session = Session(self.graph, self._config, hooks=self._hooks)
                if not self._is_ready:
                    await self.initialize(self._session)
                    self._is_ready = True
        return self._session

    async def close(self) -> None:
        """Close the model's own session; calls under way end as ``Session.close`` tells."""
        if self._session is not None:
            await self._session.close()

    async def __aenter__(self) -> Self:
        try:
            await self.ready()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<ax.Model {str(self.path)!r}>"


def load_model(
    path: str | PathLike[str],
    config: SessionConfig | None = None,
    *,
    hooks: Sequence[Hook] = (),
    allowed_ops: Collection[str] = (),
) -> Model:
    """The model in a file or folder, with what it takes and gives by name.

    The format is told by the name: a folder is a SavedModel; ``.pb``, ``.pbtxt`` and ``.json`` are GraphDefs.  Ops of a
    SavedModel may read files in its folder, and touch no others.  Nothing is read before it is needed.  ONNX Runtime
    (extra ``ort``) is imported here, once: that holds the GIL for 20 ms, which nobody waits for as long as no event
    loop is busy.

    >>> with ax.Graph() as graph:
    ...     y = ax.multiply(ax.placeholder(ax.int32, [None], name="x"), 2, name="y")
    >>> ax.save_graph_def(graph.as_graph_def(), "double.json")
    >>> model = ax.load_model("double.json")
    >>> model.signatures["serving_default"].inputs["x"].shape
    TensorShape([None])
    >>> async def main():
    ...     async with ax.load_model("double.json") as model:
    ...         return await model.signatures["serving_default"](x=[1, 2])
    >>> ax.run(main)
    {'y': array([2, 4], dtype=int32)}

    Args:
        path: a file or a folder.
        config: of the model's own session.
        hooks: of the model's own session.
        allowed_ops: op types that may reach outside the graph, wherever that is.  What runs others is refused.

    Raises:
        NotFoundError: the file is not there, or lacks others; an op type is unknown.  All that is missing is named.
        PermissionDeniedError: a file that it wants is outside of its folder.
        DataLossError: a file is cut short, or damaged.
        InvalidArgumentError: anything else is wrong with the file.
    """
    if (config is None or config.jit != "off") and has_onnx_runtime():
        onnx_runtime()
    return Model(path, config, hooks=hooks, allowed_ops=allowed_ops)
