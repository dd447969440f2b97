"""RunJournal: what has been done in one run, in a store.

====================================  ================================================================================
``runs/<run>/run``                    what the run is begun with: fetches, feeds, targets, the graph's fingerprint
``runs/<run>/<path>``                 the outputs of a node that has run
``runs/<run>/answer-<path>``          the value that a pause was given
``runs/<run>/answer-<path>-<n>``      a later one, as its op has failed with *n* values before
``runs/<run>/paused-<n>``             with so many answers, a step has ended with pauses
``runs/<run>/<path>``, of a loop      its variables at the beginning of an iteration
``runs/<run>/done``                   the run has given its result
``pauses/<run>/<path>``               a pause that waits for its value, or for another one, as its op has failed
====================================  ================================================================================

A path is shortened to a digest.  Outputs are stored before other nodes see them: what is in the store never rests on
something that is not.  A run without a name of its own is stored when it pauses; nobody could find it earlier.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from asyncexec.durable.content import has_more_than
from asyncexec.durable.journal_parts import (
    BETWEEN,
    LARGE_BYTES,
    NONCE_LENGTH,
    PAUSES,
    RUNS,
    answer_key,
    digest_in,
    digest_of,
    made,
    num_failed,
    pause_of,
    read_record,
    record_of,
    used,
)
from asyncexec.durable.journal_scope import Path
from asyncexec.durable.record import Codec, Record, from_bytes, to_bytes
from asyncexec.durable.store import Store, keys_in, put_new
from asyncexec.framework.cooperative import outlast
from asyncexec.framework.errors import (
    AbortedError,
    DataLossError,
    InvalidArgumentError,
    NotFoundError,
)
from asyncexec.framework.pausing import Pause
from asyncexec.process.gil_switches import quick_switches

_GRACE_S: Final = 1.0  # for what is being stored when the run is cancelled
_BOUNDARY: Final = "boundary"  # ends the paths of loops


@dataclass(frozen=True, slots=True)
class Asked:
    """A call of ``ax.pause`` in the step under way; *pause* is what the store has of it from an earlier step."""

    path: Path
    name: str
    payload: Any
    node: str
    iteration: str
    pause: Pause | None


class RunJournal:
    """The journal of the run *run_id* in *store*.

    Attributes:
        run_id: its name.
        told: what the run was begun with, from the store; None where the store has nothing.
        feeds: the values of its feeds then, by name.
    """

    def __init__(self, store: Store, codec: Codec, run_id: str, *, is_stored: bool) -> None:
        self.run_id: str = run_id
        self.told: Mapping[str, Any] | None = None
        self.feeds: Mapping[str, Any] = {}
        self._store = store
        self._codec = codec
        self._is_done = False
        self._waiting: dict[str, Record] | None = None if is_stored else {}  # to be stored when the run pauses
        self._results: dict[str, Sequence[Any]] = {}  # by key; taken once
        self._answers: dict[str, object] = {}
        self._num_answers: dict[str, int] = {}  # that the pause of a digest has had
        self._tokens: dict[str, str] = {}  # of answers, by digest
        self._pauses: dict[str, Pause] = {}
        self._boundaries: dict[Path, tuple[int, Sequence[object]]] = {}
        self._first: dict[Path, int] = {}  # iterations that loops go on at
        self._paths: dict[str, Path] = {}  # of results, boundaries and answers, by key
        self._pause_paths: dict[str, Path] = {}  # by digest
        self._num_failed: dict[str, int] = {}  # values with which the op of a pause has failed, by digest
        self._marks: set[str] = set()  # keys that tell how many answers there were when a step ended with pauses

    async def load(self) -> None:
        """Read what the store has of the run.

        Raises:
            DataLossError: a part of it is damaged.
            FailedPreconditionError: it was written by a newer version.
        """
        keys = await keys_in(self._store, f"{RUNS}/{self.run_id}/")
        if keys and f"{RUNS}/{self.run_id}/run" not in keys:
            await forget(self._store, self.run_id)  # its end was interrupted
            return
        for key in keys:
            try:
                self._note(key, await self._read(key))
            except NotFoundError:  # another process has gone on with the run
                continue
        for key in await keys_in(self._store, f"{PAUSES}/{self.run_id}/"):
            try:
                record = await self._read(key)
            except NotFoundError:
                continue
            digest = key.rpartition("/")[2]
            self._pauses[digest] = pause_of(record)
            self._pause_paths[digest] = tuple(record.about.get("path", ()))
            self._num_failed[digest] = num_failed(record)

    async def _read(self, key: str) -> Record:
        return await read_record(self._store, key, self._codec)

    def _note(self, key: str, record: Record) -> None:
        about, kind = record.about, record.about.get("kind")
        values = list(record.values.values())
        try:
            if kind == "run":
                self.told, self.feeds = about, record.values
            elif kind == "done":
                self._is_done = True
            elif kind == "answer":
                self._answers[key] = record.values["value"]
                self._paths[key] = tuple(about.get("path", ()))
                token = str(about["token"])
                digest = digest_in(token)
                self._tokens[digest] = token
                self._num_answers[digest] = max(self._num_answers.get(digest, 0), about.get("number", 0) + 1)
            elif kind == "paused":
                self._marks.add(key)
            elif kind == "boundary":
                path, number = tuple(about["path"]), int(about["number"])
                self._boundaries[path] = number, values
                self._first[path] = number
                self._paths[key] = (*path, _BOUNDARY)
            elif kind == "result":
                self._results[key] = values
                self._paths[key] = tuple(about["path"])
            else:
                raise KeyError("kind")
        except (KeyError, TypeError, ValueError) as error:
            raise DataLossError(f"{key!r} is no part of a journal: {error!r} is wrong") from error

    def _key(self, path: Path) -> str:
        return f"{RUNS}/{self.run_id}/{digest_of(path)}"

    def key_of(self, path: Path) -> str:
        """A string for *path* that no other run or path has."""
        return f"{self.run_id}{BETWEEN}{digest_of(path)}"

    async def begin(self, told: Mapping[str, object], feeds: Mapping[str, object]) -> None:
        """Store what the run is begun with, unless that has been done.

        Raises:
            InvalidArgumentError: a feed has no form in which it can be stored.
        """
        if self.told is not None:
            return
        self.told, self.feeds = told, feeds
        await self._put(f"{RUNS}/{self.run_id}/run", Record({**told, "kind": "run"}, feeds))

    async def has_feeds(self, feeds: Mapping[str, object]) -> bool:
        """Whether *feeds* are those that the run was begun with."""

        def are_same() -> bool:
            both = self.feeds, feeds
            before, now = (to_bytes(Record({}, dict(sorted(each.items()))), self._codec) for each in both)
            return before == now

        return await made(are_same, is_large=has_more_than(feeds, LARGE_BYTES))

    def take(self, path: Path) -> Sequence[Any] | None:
        """The outputs of the node at *path*, once; None if it has not run."""
        return self._results.pop(self._key(path), None)

    async def put(self, path: Path, op: str, outputs: Sequence[object]) -> None:
        """Store the *outputs* of the node at *path*.

        Raises:
            AbortedError: another process goes on with this run, and has stored them before.
            InvalidArgumentError: an output has no form in which it can be stored.
            OpError: the store has failed.
        """
        key = self._key(path)
        values = {f"output {i} of {path[-1]!r} ({op})": value for i, value in enumerate(outputs)}
        self._paths[key] = path
        await self._put(key, Record({"kind": "result", "path": path, "op": op}, values), is_new=True)

    def first_iteration(self, loop: Path) -> int:
        """The iteration that the loop goes on at."""
        return self._first.get(loop, 0)

    def take_boundary(self, loop: Path) -> Sequence[Any] | None:
        """The variables of the loop where it goes on, once; None if it begins anew."""
        found = self._boundaries.pop(loop, None)
        return None if found is None else found[1]

    async def put_boundary(self, loop: Path, number: int, values: Sequence[object]) -> None:
        """Store the variables of a loop at the beginning of an iteration; what earlier ones have left is forgotten.

        With answers, their number: first the marks that tell it are deleted, so that the run is unfinished.
        """
        record = Record(
            {"kind": "boundary", "path": loop, "number": number},
            {f"variable {i} of loop {loop[-1]!r}": value for i, value in enumerate(values)},
        )
        key = self._key((*loop, _BOUNDARY))
        self._paths[key] = (*loop, _BOUNDARY)
        await self._put(key, record)
        before = [key for key, path in self._paths.items() if _is_before(path, loop, number)]
        past = [digest for digest, path in self._pause_paths.items() if _is_before(path, loop, number)]
        await self._withdraw(past)  # before their values are forgotten, or they would wait again
        for digest in past:
            del self._pause_paths[digest]
        marks = self._marks if any(key in self._answers for key in before) else ()
        for key in (*marks, *before):
            self._paths.pop(key, None)
            self._marks.discard(key)
            await self._forget(key)

    async def _forget(self, key: str) -> None:
        self._results.pop(key, None)
        self._answers.pop(key, None)
        if self._waiting is None:
            await self._store.delete(key)
        else:
            self._waiting.pop(key, None)

    def _last_answer(self, path: Path) -> str:
        digest = digest_of(path)
        return answer_key(self.run_id, digest, max(self._num_answers.get(digest, 0) - 1, 0))

    def has_answer(self, path: Path) -> bool:
        """Whether the pause at *path* has been given its value."""
        return self._last_answer(path) in self._answers

    def take_answer(self, path: Path) -> Any:
        """That value."""
        return self._answers[self._last_answer(path)]

    def ask(self, path: Path, name: str, payload: object, node: str, iteration: str) -> Asked:
        """Ask for the value of a pause."""
        return Asked(path, name, payload, node, iteration, self._pauses.get(digest_of(path)))

    async def pause(self, asked: Sequence[Asked]) -> list[Pause]:
        """Store what is asked for, and what is to be stored before; the step has ended.

        Raises:
            InvalidArgumentError: a payload or an output has no form in which it can be stored.
        """
        waiting, self._waiting = self._waiting or {}, None
        for key, record in waiting.items():
            await self._put(key, record)
        pauses: list[Pause] = []
        for each in {each.path: each for each in asked}.values():  # an op that was tried again has asked again
            digest = digest_of(each.path)
            pause = each.pause
            if pause is None:
                token = f"{self.key_of(each.path)}{secrets.token_hex(NONCE_LENGTH // 2)}"
                where = each.node, each.iteration, datetime.now(UTC)
                pause = Pause(token, self.run_id, each.name, each.payload, *where)
                await self._put(f"{PAUSES}/{self.run_id}/{digest}", record_of(pause, each.path))
            pauses.append(pause)
        await self._put(f"{RUNS}/{self.run_id}/paused-{len(self._answers)}", Record({"kind": "paused"}, {}))
        await self._withdraw(self._pauses.keys() - {digest_of(each.path) for each in asked})
        return pauses

    async def give_back(self, answered: Sequence[Asked], error: BaseException) -> None:
        """Let the pauses *answered* be given other values: their op has failed with *error*.

        Their values stay until then: the run may go on with them if something else has made the op fail.
        """
        try:
            check_begin: Any = getattr(self._store, "check_begin", None)
            if answered and check_begin is not None:
                await check_begin()  # what the op has written is not to be committed
            for asked in answered:
                digest = digest_of(asked.path)
                where = asked.node, asked.iteration, datetime.now(UTC)
                pause = Pause(self._tokens[digest], self.run_id, asked.name, asked.payload, *where)
                record = record_of(pause, asked.path, self._num_answers[digest])
                await self._put(f"{PAUSES}/{self.run_id}/{digest}", record)
        except Exception as failure:
            error.add_note(f"its pauses cannot be given other values: {failure}")

    async def _withdraw(self, digests: Iterable[str]) -> None:
        """Forget pauses that no op waits for any more, such as one that has its result from a cache now."""
        for digest in digests:
            await self._store.delete(f"{PAUSES}/{self.run_id}/{digest}")

    async def answer(self, token: str, value: object) -> None:
        """Give the pause of *token* its value; it is withdrawn when the step has ended.

        Raises:
            FailedPreconditionError: it has one.
            InvalidArgumentError: the value has no form in which it can be stored.
        """
        digest = digest_in(token)
        path = self._pause_paths.get(digest, ())
        if digest not in self._pauses or self._key(path[:-1]) in self._results:
            raise used(token)  # somebody has gone on with the run
        number = self._num_failed[digest]
        key = answer_key(self.run_id, digest, number)
        record = Record({"kind": "answer", "token": token, "path": path, "number": number}, {"value": value})
        try:
            is_first = await self._store_record(key, record, is_new=True)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"the value for {token!r}: {error.message}", hint=error.hint) from error
        if not is_first:
            raise used(token)
        is_large = has_more_than(value, LARGE_BYTES)
        self._note(key, await made(lambda: from_bytes(to_bytes(record, self._codec), self._codec), is_large=is_large))

    async def finish(self) -> None:
        """Note that the run has given its result."""
        if self._waiting is None and not self._is_done:
            await self._put(f"{RUNS}/{self.run_id}/done", Record({"kind": "done"}, {}))
        await self._withdraw(self._pauses)

    async def _put(self, key: str, record: Record, *, is_new: bool = False) -> None:
        if self._waiting is not None:
            self._waiting[key] = record
        elif not await self._store_record(key, record, is_new=is_new):
            node = record.about["path"][-1]
            raise AbortedError(
                f"another process goes on with the run {self.run_id!r}, and has stored {node!r} first",
                hint="let one process at a time go on with a run",
            )

    async def _store_record(self, key: str, record: Record, *, is_new: bool) -> bool:
        """Store *record*, though the caller is cancelled: what was done is not to be done again.

        A store that does not end is given up a moment after the caller was cancelled.
        """
        task = asyncio.get_running_loop().create_task(self._encode_and_store(key, record, is_new=is_new))
        timers: list[asyncio.TimerHandle] = []

        try:
            await outlast(task.done, partial(_wait, task, timers))
            return bool(task.result())
        finally:
            for timer in timers:
                timer.cancel()
            if task.done() and not task.cancelled():
                task.exception()
            del task

    async def _encode_and_store(self, key: str, record: Record, *, is_new: bool) -> bool:
        is_large = has_more_than(record.values, LARGE_BYTES)
        content = await made(partial(to_bytes, record, self._codec), is_large=is_large)
        with quick_switches():
            if is_new:
                return await put_new(self._store, key, content)
            await self._store.put(key, content)
        return True


async def _wait(task: asyncio.Task[bool], timers: list[asyncio.TimerHandle]) -> None:
    """Wait for *task*.  Where this is cancelled, one of *timers* cancels it in a moment."""
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        timers.append(asyncio.get_running_loop().call_later(_GRACE_S, task.cancel))
        raise


async def forget(store: Store, run_id: str) -> None:
    """Delete what *store* has of the run; first what it was begun with: without that, there is no run."""
    keys = [key for folder in (PAUSES, RUNS) for key in await keys_in(store, f"{folder}/{run_id}/")]
    await store.delete(f"{RUNS}/{run_id}/run")
    for key in keys:
        await store.delete(key)


def _is_before(path: Path, loop: Path, number: int) -> bool:
    """Whether *path* is in an iteration before *number* of *loop*."""
    at = len(loop) - 1
    if path[:at] != loop[:at] or len(path) <= at:
        return False
    name, _, iteration = path[at].rpartition(" ")
    return name == loop[-1] and iteration.isdecimal() and int(iteration) < number
