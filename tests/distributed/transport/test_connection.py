"""Connections: what is sent comes, in which order, and how they end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from asyncexec.framework.errors import InvalidArgumentError, UnavailableError
from tests.distributed.transport.ends import CHIEF, WORKER, address_of, both_kinds, connected


@both_kinds
async def test_messages_come_in_order(kind: str, tmp_path: Path) -> None:
    async with connected(address_of(kind, tmp_path)) as ends:
        sent = [(i % 128, b"x" * i) for i in range(300)]
        for number, body in sent:
            ends.near.send(number, body)
        ends.far.send(7)
        await ends.at_far.until(lambda at: len(at.messages) == len(sent))
        await ends.at_near.until(lambda at: at.messages)
        assert ends.at_far.messages == sent
        assert ends.at_near.messages == [(7, b"")]
        assert (ends.near.peer, ends.far.peer) == (WORKER, CHIEF)


@both_kinds
async def test_tensors_come_as_they_are(kind: str, tmp_path: Path) -> None:
    large = np.arange(3_000_000, dtype=np.float64).reshape(3, 1000, 1000)
    async with connected(address_of(kind, tmp_path)) as ends:
        ends.near.send_tensor(4, "a;b", np.float32(2.5))
        ends.near.send_tensor(5, "large", large)
        ends.near.send_tensor(6, "dead", 3, is_dead=True)
        await ends.at_far.until(lambda at: len(at.tensors) == 3)
        (*_, first, _), (_, _, dead, is_dead), (step, key, value, _) = ends.at_far.tensors
        assert type(first) is np.float32
        assert first == 2.5
        assert (dead, is_dead) == (None, True)
        assert (step, key) == (5, "large")
        np.testing.assert_array_equal(value, large)


async def test_what_has_no_form_is_refused_and_nothing_is_queued(tmp_path: Path) -> None:
    async with connected(address_of("unix", tmp_path)) as ends:
        queued = ends.near.queued_bytes
        with pytest.raises(InvalidArgumentError, match=r"'k': a value of type builtins.object cannot go"):
            ends.near.send_tensor(1, "k", object())
        assert ends.near.queued_bytes == queued


async def test_what_is_queued_goes_out_before_the_end(tmp_path: Path) -> None:
    large = np.arange(4_000_000)
    async with connected(address_of("unix", tmp_path)) as ends:
        ends.near.send_tensor(1, "large", large)
        ends.near.send(1, b"last")
        await ends.near.close()
        await ends.at_far.until(lambda at: at.lost)
        assert ends.at_far.messages == [(1, b"last")]
        np.testing.assert_array_equal(ends.at_far.tensors[0][2], large)
        assert isinstance(ends.at_far.lost[0], UnavailableError)
        assert CHIEF.name in str(ends.at_far.lost[0])
        assert ends.at_near.lost == []
        with pytest.raises(UnavailableError, match="closed"):
            ends.near.send(1)
        await ends.near.close()
