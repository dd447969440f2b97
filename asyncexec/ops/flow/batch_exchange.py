"""Where the calls of Unbatch and of UnbatchGrad meet: each brings what another waits for.

Rules from ``UnbatchResource`` and ``UnbatchGradResource`` in ``tensorflow/core/kernels/batch_kernels.cc``.  Whoever is
there first waits: rows for their call, or a call for its rows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from asyncexec.framework.errors import AlreadyExistsError, DeadlineExceededError, InternalError, InvalidArgumentError
from asyncexec.framework.ownership import keep


class RowExchange:
    """Brings the rows that calls of Unbatch have split to the calls that they belong to, within *timeout_s*."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._calls: dict[int, asyncio.Future[object]] = {}  # that wait for rows, by id
        self._rows: dict[int, tuple[object, asyncio.TimerHandle]] = {}  # that wait for a call

    async def run(self, split: Mapping[int, Sequence[object]], number: int) -> Any:
        """The rows of the call *number*, which brings the rows in *split*, each id's own.

        Raises:
            AlreadyExistsError: another call of that number waits, or other rows wait for one of the calls.
            DeadlineExceededError: nobody has brought them in time.
        """
        if number in self._rows:
            rows, timer = self._rows.pop(number)
            timer.cancel()
            return rows
        if number in self._calls:
            raise AlreadyExistsError("Multiple session runs with the same batch key.")
        loop = asyncio.get_running_loop()
        call = self._calls[number] = loop.create_future()
        timer = loop.call_later(self._timeout_s, _settle, call, None)
        try:
            self._hand_out(split, loop)
            rows = await call
        finally:
            timer.cancel()
            if self._calls.get(number) is call:
                del self._calls[number]
        if rows is None:
            raise DeadlineExceededError("Batched data did not arrive within timeout window.")
        return rows

    def _hand_out(self, split: Mapping[int, Sequence[object]], loop: asyncio.AbstractEventLoop) -> None:
        for number, pieces in split.items():
            for rows in pieces:
                call = self._calls.pop(number, None)
                if call is not None and not call.done():
                    call.set_result(rows)
                elif number in self._rows:
                    raise AlreadyExistsError("Multiple tensors returned for same batch key.")
                else:  # its call may have waited in vain, and be gone
                    self._rows[number] = rows, loop.call_later(self._timeout_s, self._rows.pop, number, None)

    def close(self) -> None:
        """Forget all rows."""
        rows, self._rows = self._rows, {}
        for _, timer in rows.values():
            timer.cancel()


def _settle(call: asyncio.Future[object], result: object) -> None:
    if not call.done():
        call.set_result(result)


class GradientExchange:
    """Brings the gradients of the calls in a batch to the one that leads it."""

    def __init__(self) -> None:
        self._gradients: dict[int, Any] = {}  # that no leader has taken, by id
        self._leaders: dict[int, tuple[set[int], asyncio.Future[None]]] = {}  # who waits for what, by what is missing

    async def run(self, wanted: Sequence[int] | None, gradient: Any, number: int) -> Any:
        """All that are *wanted*, of the leader of a batch; of another call (None), no rows.

        The call *number* brings *gradient*.

        Raises:
            InvalidArgumentError: another call of that number has brought one, or another leader waits for the same.
            InternalError: another leader has taken one.
        """
        if number in self._gradients:
            raise InvalidArgumentError("Two runs with the same batch key.")
        self._gradients[number] = keep(gradient)  # which the step of this call may end before
        self._tell_leader(number)
        if wanted is None:
            return gradient[:0].copy()
        missing = {each for each in wanted if each not in self._gradients}
        if missing:
            await self._wait_for(missing)
        taken = [self._gradients.pop(each, None) for each in wanted]
        if any(each is None for each in taken):
            raise InternalError("bad bookkeeping of available tensors: an id is wanted twice, or by two leaders")
        return np.concatenate(taken)

    async def _wait_for(self, missing: set[int]) -> None:
        if not missing.isdisjoint(self._leaders):
            raise InvalidArgumentError("Missing tensor wanted by more than one batch.")
        complete: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = missing, complete
        self._leaders.update(dict.fromkeys(missing, entry))
        try:
            await complete
        finally:
            for number in missing:  # of a leader that is cancelled
                del self._leaders[number]

    def _tell_leader(self, number: int) -> None:
        missing, complete = self._leaders.pop(number, (None, None))
        if missing is None or complete is None:
            return
        missing.discard(number)
        if not missing and not complete.done():
            complete.set_result(None)
