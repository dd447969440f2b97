"""``@ax.op(cache=...)``: results of an op by the content of its inputs, and one call for all who ask at one time.

A node looks for the digest of its inputs in the cache.  Where nothing is there, the function is called, with timeout,
retries and limiter as they are; its outputs are kept, and then given to all who wait for them.  What fails is not kept:
a fallback stands around all of this.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, TypeAlias

from asyncexec.durable.content import DIGEST_BYTES, digest_of, has_more_than, num_bytes_of
from asyncexec.durable.journal_scope import Parked
from asyncexec.durable.result_cache import ResultCache, packed, unpacked
from asyncexec.durable.store import checked_store
from asyncexec.framework.errors import DataLossError, InvalidArgumentError, InvalidTypeError, NotFoundError, OpError
from asyncexec.framework.kernel_warning import CacheWarning, warn_of_kernel
from asyncexec.framework.ownership import keep
from asyncexec.framework.single_flight import Flights, Part
from asyncexec.framework.step_stats import CallStats, begin_call, ended_call
from asyncexec.frontend.user_op_policies import AsyncCall, OpOptions, with_policies

Give: TypeAlias = Callable[[Any], Any]
_UNFIT: Final = re.compile(r"[^A-Za-z0-9_]+")
_MAX_NAME: Final = 60
_LARGE_BYTES: Final = 64 * 1024  # more than this is not hashed, copied or encoded in the event loop


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """The calls of one op with a cache, in one session.

    Attributes:
        hits: the result was in the cache.
        joined: the call of another node was under way, which asked for the same.
        misses: the function was called.
    """

    hits: int
    joined: int
    misses: int


@dataclass(slots=True)
class _Counts:
    hits: int = 0
    joined: int = 0
    misses: int = 0


class CachedCalls:
    """The calls of ops with caches in one session."""

    def __init__(self) -> None:
        self.flights: Flights = Flights()
        self._counts: dict[str, _Counts] = {}

    def counts_of(self, op: str) -> _Counts:
        """The counts of *op*."""
        return self._counts.setdefault(op, _Counts())

    def statistics(self) -> dict[str, CacheStatistics]:
        """The calls of each op that has been called."""
        return {op: CacheStatistics(counts.hits, counts.joined, counts.misses) for op, counts in self._counts.items()}

    def drop_loop(self) -> None:
        """Forget the calls under way: their loop is closed."""
        self.flights.drop_loop()


@dataclass(frozen=True, slots=True)
class CacheOptions:
    """What ``@ax.op`` was told of a cache."""

    cache: Any = None
    key: Any = None
    ttl: Any = None
    version: Any = ""

    def check(self, op: str, num_outputs: int, *, is_ordered: bool) -> None:
        """Raise InvalidArgumentError where they are not what they should be, or the op cannot have a cache."""
        if self.cache is None:
            given = [name for name in ("key", "ttl") if getattr(self, name) is not None]
            given += ["version"] * (self.version != "")
            if given:
                raise InvalidArgumentError(f"op {op!r} has {given[0]}=, but no cache", hint="cache=ax.ResultCache()")
            return
        if not num_outputs:
            raise InvalidArgumentError(
                f"op {op!r} gives nothing that could be cached", hint="cache= is for ops that give a result"
            )
        if is_ordered:
            raise InvalidArgumentError(
                f"op {op!r} is ordered, so it is called for its effects, and a cache would leave out calls",
                hint="leave out cache= or ordered=True",
            )
        self._check_values(op)

    def _check_values(self, op: str) -> None:
        if not isinstance(self.cache, ResultCache):
            try:
                checked_store(self.cache)
            except InvalidTypeError as error:
                raise InvalidTypeError(
                    f"op {op!r}: a cache is an ax.ResultCache or a store, not {type(self.cache).__name__}",
                    hint='cache=ax.ResultCache(), or cache=ax.checkpoint.FileStore("results")',
                ) from error
            if getattr(self.cache, "commits_outputs", False):
                raise InvalidArgumentError(
                    f"op {op!r}: a cache on your own connection would commit what you have written to it",
                    hint="give SQLiteStore the path",
                )
        if self.key is not None and (not callable(self.key) or inspect.iscoroutinefunction(self.key)):
            raise InvalidTypeError(f"op {op!r}: key is a plain function of the arguments, not {self.key!r}")
        if not isinstance(self.version, (str, int)):
            raise InvalidTypeError(f"op {op!r}: a version is a str or an int, not {self.version!r}")
        is_number = isinstance(self.ttl, (int, float)) and not isinstance(self.ttl, bool)
        if self.ttl is not None and not (is_number and 0 < self.ttl < math.inf):
            raise InvalidArgumentError(f"op {op!r}: a ttl is a number of seconds, more than 0, not {self.ttl!r}")


class OpCache:
    """The cache of one op, whose results depend on *about* besides the arguments: the function, the version, dtypes."""

    def __init__(self, op: str, options: CacheOptions, about: Sequence[object], num_outputs: int) -> None:
        self.op: str = op
        self.key: Callable[..., Any] | None = options.key
        self._cache: Any = options.cache
        self._ttl_s = options.ttl
        self._abouts = [digest_of([op, *about, options.version, is_key]) for is_key in (False, True)]
        self._num_outputs = num_outputs
        self._has_warned = False

    async def digest(self, content: object, *, is_key: bool) -> bytes:
        """What tells *content*, the inputs or what the key gave, from other content.

        Raises:
            InvalidTypeError: there is something in it whose content is not known.
        """
        if has_more_than(content, _LARGE_BYTES):
            return await asyncio.to_thread(self._digest, content, is_key)
        return self._digest(content, is_key)

    def _digest(self, content: object, is_key: bool) -> bytes:
        try:
            return hashlib.blake2b(self._abouts[is_key] + digest_of(content), digest_size=DIGEST_BYTES).digest()
        except InvalidTypeError as error:
            what = "what key= gave" if is_key else "an argument"
            raise InvalidTypeError(
                f"the cache does not know results by {what}: {error.message}",
                hint="let key= give what the result depends on: key=lambda client, text: text, for example",
            ) from error

    def find_nowait(self, digest: bytes) -> Sequence[Any] | None:
        """The outputs for *digest*, where they are in memory."""
        if not isinstance(self._cache, ResultCache):
            return None
        return self._cache.find(digest, asyncio.get_running_loop().time(), self._ttl_s)

    async def find(self, digest: bytes, give: Give) -> list[Any] | None:
        """The outputs for *digest*, where they are in a store."""
        if isinstance(self._cache, ResultCache):
            return None
        name = self._name(digest)
        try:
            content = await self._cache.get(name)
        except NotFoundError:
            return None
        except Exception as error:
            self._warn_once("cannot be read", error)
            return None
        try:
            is_large = len(content) > _LARGE_BYTES
            found = (name, content, self._ttl_s)
            outputs = await asyncio.to_thread(unpacked, *found) if is_large else unpacked(*found)
            return None if outputs is None else self._checked(outputs, give)
        except Exception as error:  # whatever the store gave
            self._warn(f"the entry {name!r} cannot be used: {_told(error)}")
            return None

    def _checked(self, outputs: list[object], give: Give) -> list[object]:
        if len(outputs) != self._num_outputs:
            raise DataLossError(f"it has {len(outputs)} outputs, and the op {self._num_outputs}")
        return self.listed(give(self.result(outputs)))

    async def keep(self, digest: bytes, outputs: Sequence[object]) -> list[Any]:
        """*outputs* that nobody can change, which are kept where that can be done."""
        if has_more_than(outputs, _LARGE_BYTES):
            kept, num_bytes = await asyncio.to_thread(_kept, outputs)
        else:
            kept, num_bytes = _kept(outputs)
        if isinstance(self._cache, ResultCache):
            self._cache.keep(digest, kept, num_bytes, asyncio.get_running_loop().time())
            return kept
        name = self._name(digest)
        try:
            is_large = num_bytes > _LARGE_BYTES
            content = await asyncio.to_thread(packed, name, kept) if is_large else packed(name, kept)
            await self._cache.put(name, content)
        except Exception as error:
            self._warn_once("cannot be written", error)
        return kept

    def listed(self, result: Any) -> list[Any]:
        """The outputs in what a kernel gives."""
        return [result] if self._num_outputs == 1 else list(result)

    def result(self, outputs: Sequence[object]) -> Any:
        """What a kernel gives of *outputs*."""
        return outputs[0] if self._num_outputs == 1 else tuple(outputs)

    def _name(self, digest: bytes) -> str:
        name = _UNFIT.sub("-", self.op)[:_MAX_NAME].strip("-") or "op"
        return f"results/{name}/{digest.hex()}"

    def _warn_once(self, what: str, error: Exception) -> None:
        if not self._has_warned:
            self._has_warned = True
            self._warn(f"{self._cache!r} {what}: {_told(error)}; further failures are not told")

    def _warn(self, message: str) -> None:
        warn_of_kernel(f"cache of op {self.op!r}: {message}", CacheWarning)


def _kept(outputs: Sequence[object]) -> tuple[list[object], int]:
    """*outputs* that nobody can change, and about how many bytes they have."""
    return [keep(output) for output in outputs], sum(map(num_bytes_of, outputs))


def _told(error: Exception) -> str:
    return error.message if isinstance(error, OpError) else f"{type(error).__name__}: {error}"


class _Found(NamedTuple):
    result: Any
    is_hit: bool


class CachedCall:
    """The calls of one kernel.

    Args:
        call: the function, with timeout, retries and limiter.
        options: what *call* is made as, and the fallback, which stands around it.
        give: what makes outputs of a result.
        key: gives what the result depends on; None for all inputs, the last of which have *names*.
    """

    def __init__(
        self,
        cache: OpCache,
        calls: CachedCalls,
        call: AsyncCall,
        options: OpOptions,
        give: Give,
        *,
        key: Callable[..., Any] | None,
        names: Sequence[str],
        is_plain: bool,
    ) -> None:
        self._cache = cache
        self._flights = calls.flights
        self._counts = calls.counts_of(cache.op)
        self._call = call
        self._give = give
        self._key = key
        self._names = names
        self._policies = cache, replace(options, fallback=None, name=None)
        self._shared_or_fallback = with_policies(self._shared, OpOptions(fallback=options.fallback), is_plain=is_plain)

    async def run(self, *inputs: Any) -> Any:
        """The result for *inputs*."""
        is_key = self._key is not None
        content = [self._names, *inputs] if self._key is None else self._key(*inputs)
        return await self._shared_or_fallback(await self._cache.digest(content, is_key=is_key), inputs)

    async def _shared(self, digest: bytes, inputs: Sequence[object]) -> object:
        stats = begin_call()
        outputs = self._cache.find_nowait(digest)
        if outputs is not None:
            self._counts.hits += 1
            stats.cached = "hit"
            return self._cache.result(outputs)
        is_first = False

        async def begin() -> _Found:
            nonlocal is_first
            is_first = True
            return await self._found_or_called(digest, inputs, stats)

        stats.cached = "miss"
        try:
            found, part = await self._flights.result_of((*self._policies, digest), begin)
        except Parked:
            if is_first:
                raise
            found, part = await begin(), Part.FIRST  # pauses are not shared: this caller asks for its own
        if found.is_hit:
            self._counts.hits += 1
        elif part is Part.JOINED:
            self._counts.joined += 1
        stats.cached = "hit" if found.is_hit else "joined" if part is Part.JOINED else "miss"
        return found.result

    async def _found_or_called(self, digest: bytes, inputs: Sequence[object], stats: CallStats) -> _Found:
        outputs = await self._cache.find(digest, self._give)
        if outputs is not None:
            return _Found(self._cache.result(outputs), True)
        self._counts.misses += 1
        try:
            result = await self._call(*inputs)
        finally:
            counted = ended_call()
            stats.attempts = 1 if counted is None else counted.attempts
            stats.limiter_wait_s = 0.0 if counted is None else counted.limiter_wait_s
        try:
            outputs = self._cache.listed(self._give(result))
        except OpError:  # it is none, which is told when the node has ended
            return _Found(result, False)
        return _Found(self._cache.result(await self._cache.keep(digest, outputs)), False)
