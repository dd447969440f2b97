"""RemoteSession: runs a model that another process serves."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Self
from weakref import WeakSet

from asyncexec.client.connecting import WantedModel
from asyncexec.client.connection import Calls, Connection
from asyncexec.client.remote_fetches import Parameters, RemoteFetches, fetches_key
from asyncexec.client.remote_scope import StreamRules
from asyncexec.client.remote_signature import RemoteSignature, TensorInfo
from asyncexec.client.remote_streams import MapScope, RemoteMap, RemoteStream, RpcScope
from asyncexec.framework.errors import CancelledError, UnimplementedError
from asyncexec.session.call_arguments import checked_options
from asyncexec.session.session_config import RunOptions

if TYPE_CHECKING:
    from types import TracebackType

    from asyncexec.client.remote_scope import RemoteScope
    from asyncexec.session.stream_session import OnError

_MOST_KNOWN: Final = 1000  # nests of fetches
_NO_FEEDS: Final[Mapping[str, object]] = {}


class RemoteSession:
    """Runs a model of a server, for one event loop; ``ax.connect(url, model=...)`` makes it.

    It is used like ``ax.Session``.  Fetches and feeds are names of the model's outputs and inputs; "y:0" is "y", as in
    a session of the graph.  Any number of runs may be under way at once.

    Attributes:
        model, version: what it runs; version "" is the one that the server prefers.
        url: where the server is.
        inputs, outputs: what the model takes and gives, by name, as it was when the session was connected.
    """

    def __init__(
        self,
        calls: Calls,
        url: str,
        wanted: WantedModel,
        signature: RemoteSignature,
        owned: Connection | None,
    ) -> None:
        self.model: str = wanted.model
        self.version: str = wanted.version
        self.url: str = url
        self.inputs: Mapping[str, TensorInfo] = signature.inputs
        self.outputs: Mapping[str, TensorInfo] = signature.outputs
        self._signature = signature
        self._calls = calls
        self._infer = calls.unary("ModelInfer")
        self._owned = owned
        self._timeout_s = wanted.timeout_s
        self._python_scalars = wanted.python_scalars
        self._known: dict[Any, RemoteFetches] = {}
        self._scopes: WeakSet[RemoteScope] = WeakSet()

    async def __aenter__(self) -> Self:
        self._calls.check_open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        words = [f"{', '.join(self.inputs)} -> {', '.join(self.outputs)}"]
        if self._calls.is_closed:
            words.append("closed")
        return f"<RemoteSession of {self.model!r} at {self.url}: {', '.join(words)}>"

    async def run(
        self,
        fetches: Any,
        feeds: Mapping[str, Any] | None = None,
        *,
        options: RunOptions | None = None,
        parameters: Parameters | None = None,
    ) -> Any:
        """Run the model, and return the values of *fetches*.

        Args:
            fetches: the name of an output, or a nest of lists, tuples, named tuples, dicts and dataclasses of names.
            feeds: values by the names of inputs.  Do not change their arrays until this returns.
            options: ``timeout``, which the server gets as the deadline of the call, and ``python_scalars``.
            parameters: of the request, as the server knows them: ``priority`` or ``sequence_id``, for example.

        Returns:
            The same nest with values: numpy arrays, numpy scalars for 0-d tensors, bytes for 0-d strings.

        Raises:
            InvalidArgumentError: there is no such input or output, or a value does not fit its input.
            DeadlineExceededError: the run took longer than its timeout.
            UnavailableError: the server cannot be reached, or is overloaded.
            OpError: what else the server tells; it names the node, if there is one.
            asyncio.CancelledError: the caller was cancelled; so is the run in the server.
        """
        self._calls.check_open()
        timeout_s, python_scalars = self._timeout_s, self._python_scalars
        if options is not None:
            timeout_s, python_scalars = self._with_options(checked_options(options))
        wanted = self._wanted(fetches)
        request = await wanted.encode(_NO_FEEDS if feeds is None else feeds, parameters=parameters)
        data = await self._infer(request, timeout_s)
        return await wanted.decode(data, python_scalars=python_scalars)

    def _with_options(self, options: RunOptions) -> tuple[float | None, bool]:
        for name in ("trace", "output_partition_graphs", "output_pass_graphs", "queue", "retries"):
            if getattr(options, name):
                hint = 'parameters={"priority": 1}' if name == "queue" else None
                raise UnimplementedError(f"a remote run has no RunOptions.{name}", hint=hint)
        asked = options.python_scalars
        return options.timeout or self._timeout_s, self._python_scalars if asked is None else asked

    def _wanted(self, fetches: object) -> RemoteFetches:
        key = fetches_key(fetches)
        wanted = self._known.get(key)
        if wanted is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            wanted = self._known[key] = RemoteFetches(self.model, self.version, self._signature, fetches)
        return wanted

    def stream(
        self, fetches: object, *, window: int = 32, ordered: bool = True, on_error: OnError = "raise"
    ) -> RemoteStream:
        """A stream of items, which are requests of one call: ``async with session.stream("y") as stream``.

        A model may give several results for an item ("decoupled" models do); each is a result of the stream.

        Args:
            fetches: the fetches of every item, as run() takes them.
            window: the largest number of items that have been sent and whose results have not been taken.
            ordered: whether results come in the order of the items, or as they complete.
            on_error: whether an item's error, which names its number, ends the stream ("raise") or is its result
                ("yield").
        """
        rules = StreamRules(window, ordered, on_error)
        self._calls.check_open()
        wanted = self._wanted(fetches)

        def open_scope() -> RpcScope:
            self._calls.check_open()
            scope = RpcScope(rules, wanted, self._calls, python_scalars=self._python_scalars)
            self._scopes.add(scope)
            return scope

        return RemoteStream(open_scope)

    def map(
        self,
        fetches: object,
        items: Iterable[Mapping[str, object]] | AsyncIterable[Mapping[str, object]],
        *,
        window: int = 32,
        ordered: bool = True,
        on_error: OnError = "raise",
    ) -> RemoteMap:
        """The results of *fetches* for each of *items*, feeds as run() takes them: ``async for y in session.map(...)``.

        Each item is a call of its own, and up to *window* of them are under way.  Items are drawn when there is room in
        the window.  An exception of *items* is raised after the results of the items before it.  The other arguments
        are those of stream().
        """
        rules = StreamRules(window, ordered, on_error)
        self._calls.check_open()
        wanted = self._wanted(fetches)

        async def call(data: bytes) -> Any:
            return await wanted.decode(await self._infer(data, None), python_scalars=self._python_scalars)

        def open_scope() -> MapScope:
            self._calls.check_open()
            scope = MapScope(rules, wanted, call)
            self._scopes.add(scope)
            return scope

        return RemoteMap(open_scope, items)

    async def close(self) -> None:
        """End all runs, maps and streams; their callers get CancelledError.  New ones are refused.

        FailedPreconditionError in another event loop than the session was connected in.
        """
        self._calls.check_loop()
        calls, scopes = self._calls, list(self._scopes)
        calls.is_closed = True
        for scope in scopes:
            scope.abort(CancelledError("Session has been closed."))
        for scope in scopes:
            await scope.wait_for_tasks()
        await calls.close()
        if self._owned is not None:
            await self._owned.close()


async def open_session(connection: Connection, wanted: WantedModel, *, owns_connection: bool = False) -> RemoteSession:
    """A session of the model that is *wanted* over *connection*, which it closes if it *owns* that."""
    calls = connection.calls(wanted.model, wanted.version)
    metadata = await calls.ask("ModelMetadata", wanted.timeout_s, name=wanted.model, version=wanted.version)
    signature = RemoteSignature.of(wanted.model, metadata)
    return RemoteSession(calls, connection.url, wanted, signature, connection if owns_connection else None)
