"""Sequences: calls of a model that belong together, run in their order, and find what the call before has left.

A sequence is known from the call that starts it until the call that ends it has come, or until it has been idle for too
long.  Of those that are known, so many are candidates, whose calls run; the others wait, first come, first served.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from asyncexec.framework.errors import DeadlineExceededError, InvalidArgumentError, UnavailableError
from asyncexec.graph.node import Tensor
from asyncexec.service.models.config import MOST_SEQUENCES
from asyncexec.service.requests import InferRequest

SequenceId: TypeAlias = int | str

_MOST_WAITING: Final = 1000  # calls of a sequence that have not ended
_LONGEST_ID: Final = 128
_MOST_ID: Final = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Place:
    """Which sequence a call belongs to, and whether it starts or ends it."""

    id: SequenceId
    is_start: bool = False
    is_end: bool = False


def place_of(request: InferRequest) -> Place:
    """What *request* says of its sequence.

    Raises:
        InvalidArgumentError: it says none, or what it says means nothing.
    """
    found = request.parameters.get("sequence_id", 0)
    if isinstance(found, bool) or not isinstance(found, (int, str)):
        raise InvalidArgumentError(f"parameter 'sequence_id' is an integer or a string, not {found!r}")
    if isinstance(found, int) and not 0 <= found <= _MOST_ID:
        raise InvalidArgumentError(f"parameter 'sequence_id' is from 0 to {_MOST_ID}, and is {found}")
    if isinstance(found, str) and len(found) > _LONGEST_ID:
        raise InvalidArgumentError(f"string correlation ID cannot be longer than {_LONGEST_ID} characters")
    if not found:
        raise InvalidArgumentError(
            f"inference request to model '{request.model_name}' must specify a non-zero or non-empty correlation ID"
        )
    return Place(found, _flag(request, "sequence_start"), _flag(request, "sequence_end"))


def _flag(request: InferRequest, name: str) -> bool:
    value = request.parameters.get(name, False)
    if not isinstance(value, bool):
        raise InvalidArgumentError(f"parameter '{name}' is a boolean, not {value!r}")
    return value


class Kept:
    """What a sequence keeps since it was started.

    Attributes:
        values: what its last call has left, by what takes it; empty before the first.
    """

    __slots__ = ("values",)

    def __init__(self) -> None:
        self.values: Mapping[Tensor[Any], Any] = {}


class _Sequence:
    """One sequence."""

    __slots__ = ("has_ended", "id", "is_candidate", "kept", "num_calls", "timer", "turn")

    def __init__(self, sequence_id: SequenceId) -> None:
        self.id: SequenceId = sequence_id
        self.kept = Kept()
        self.num_calls: int = 0  # that have not ended
        self.has_ended: bool = False  # no more calls come
        self.is_candidate: asyncio.Event = asyncio.Event()
        self.turn: asyncio.Lock = asyncio.Lock()  # first come, first served
        self.timer: asyncio.TimerHandle | None = None  # while it is idle


class Sequences:
    """The sequences of the model called *name*.

    Args:
        idle_s: how long one may be without a call.
        most_candidates: how many run at a time; None for all.
    """

    def __init__(self, name: str, idle_s: float, most_candidates: int | None) -> None:
        self._name = name
        self._idle_s = idle_s
        self._most_candidates = most_candidates
        self._num_candidates = 0
        self._num_sequences = 0  # also those whose last call has come and has not ended
        self._known: dict[SequenceId, _Sequence] = {}
        self._waiting: deque[_Sequence] = deque()  # to be candidates
        self._is_closing = False

    def __len__(self) -> int:
        """How many are known."""
        return len(self._known)

    @asynccontextmanager
    async def turn(self, place: Place, deadline: float | None) -> AsyncIterator[Kept]:
        """What the sequence keeps that a call belongs to, while it is the call's turn.

        Args:
            deadline: until when to wait for that, by the clock of the event loop.

        Raises:
            InvalidArgumentError: nobody has started the sequence.
            UnavailableError: there are too many sequences, or too many calls of this one wait.
            DeadlineExceededError: the turn has not come.
        """
        sequence = self._enter(place)
        kept = sequence.kept  # another call may start the sequence again before it is this one's turn
        try:
            await self._wait_for_turn(sequence, deadline)
            try:
                yield kept
            finally:
                sequence.turn.release()
        finally:
            self._leave(sequence)

    def stop(self) -> None:
        """End those without a call, now and when the calls under way have ended: no more calls come."""
        self._is_closing = True
        for sequence in list(self._known.values()):
            if not sequence.num_calls:
                self._end(sequence)

    def _enter(self, place: Place) -> _Sequence:
        sequence = self._known.get(place.id)
        if sequence is None:
            if not place.is_start:
                raise InvalidArgumentError(
                    f"inference request for sequence {place.id} to model '{self._name}' must specify the START flag on "
                    "the first request of the sequence"
                )
            if self._num_sequences >= MOST_SEQUENCES:
                raise UnavailableError(
                    f"model '{self._name}' has {MOST_SEQUENCES} sequences: no other starts before one of them ends"
                )
            sequence = self._known[place.id] = _Sequence(place.id)
            self._num_sequences += 1
            self._waiting.append(sequence)
            self._admit()
        elif sequence.num_calls >= _MOST_WAITING:
            raise UnavailableError(f"{_MOST_WAITING} calls of sequence {place.id} to model '{self._name}' wait already")
        if place.is_start:
            sequence.kept = Kept()
        sequence.num_calls += 1
        if sequence.timer is not None:
            sequence.timer.cancel()
            sequence.timer = None
        if place.is_end:
            self._forget(sequence)
        return sequence

    async def _wait_for_turn(self, sequence: _Sequence, deadline: float | None) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                await sequence.turn.acquire()  # first: so who comes when it has just become a candidate is not before
                try:
                    await sequence.is_candidate.wait()
                except BaseException:
                    sequence.turn.release()
                    raise
        except TimeoutError:
            raise DeadlineExceededError(
                f"the call of sequence {sequence.id} to model '{self._name}' took more than its timeout: "
                "its turn had not come"
            ) from None

    def _leave(self, sequence: _Sequence) -> None:
        sequence.num_calls -= 1
        if sequence.num_calls:
            return
        if sequence.has_ended or self._is_closing:
            self._end(sequence)
        else:
            sequence.timer = asyncio.get_running_loop().call_later(self._idle_s, self._end, sequence)

    def _forget(self, sequence: _Sequence) -> None:
        """Take no more calls of *sequence*: its id may become that of another."""
        sequence.has_ended = True
        if self._known.get(sequence.id) is sequence:
            del self._known[sequence.id]

    def _end(self, sequence: _Sequence) -> None:
        """Let go of *sequence*, which has no calls."""
        self._forget(sequence)
        self._num_sequences -= 1
        if sequence.timer is not None:
            sequence.timer.cancel()
            sequence.timer = None
        if sequence.is_candidate.is_set():
            self._num_candidates -= 1
            self._admit()
        else:
            self._waiting.remove(sequence)

    def _admit(self) -> None:
        """Let as many be candidates as may be."""
        while self._waiting and (self._most_candidates is None or self._num_candidates < self._most_candidates):
            self._num_candidates += 1
            self._waiting.popleft().is_candidate.set()
