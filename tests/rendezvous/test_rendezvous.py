"""ax.Rendezvous: the one that users make."""

from __future__ import annotations

import pytest

import asyncexec as ax
from asyncexec.framework.rendezvous import RendezvousInterface
from tests.rendezvous.conformance import RendezvousConformance
from tests.running import settle, started

CPU = "/job:localhost/replica:0/task:0/device:CPU:0"


class TestRendezvous(RendezvousConformance):
    @pytest.fixture
    def rendezvous(self) -> RendezvousInterface:
        return ax.Rendezvous()


async def test_whoever_holds_it_may_still_send() -> None:
    rendezvous = ax.Rendezvous()
    assert not rendezvous.has_in_flight
    receiver = await started(rendezvous.recv("a"))
    await settle()
    assert rendezvous.has_in_flight
    rendezvous.send("a", 1.0)
    value, is_dead, _ = await receiver
    assert (value, is_dead, rendezvous.has_in_flight) == (1.0, False, False)


def test_keys_have_parts() -> None:
    key = ax.Rendezvous.create_key(CPU, 7, CPU, "edge")
    assert key == f"{CPU};0000000000000007;{CPU};edge;0:0"
    assert ax.Rendezvous.parse_key(key).edge_name == "edge"
    with pytest.raises(ax.errors.InvalidArgumentError):
        ax.Rendezvous.parse_key("edge")
