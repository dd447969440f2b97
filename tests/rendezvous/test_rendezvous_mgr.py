"""RendezvousMgr: a rendezvous for each step, and what becomes of those who wait when a step is cleaned up."""

from __future__ import annotations

import pytest

from asyncexec.framework.errors import AbortedError
from asyncexec.rendezvous.intra_process import Rendezvous
from asyncexec.rendezvous.rendezvous_mgr import RendezvousMgr
from tests.running import started

KEY = "key"


@pytest.fixture
def manager() -> RendezvousMgr[Rendezvous]:
    return RendezvousMgr(Rendezvous)


async def test_who_asks_for_a_step_gets_its_rendezvous(manager: RendezvousMgr[Rendezvous]) -> None:
    manager.find(123).send(KEY, "peach")
    manager.find(124).send(KEY, "plum")
    assert (await manager.find(123).recv(KEY))[0] == "peach"
    assert (await manager.find(124).recv(KEY))[0] == "plum"
    assert len(manager) == 2


async def test_cleanup_wakes_who_waits(manager: RendezvousMgr[Rendezvous]) -> None:
    waiting = await started(manager.find(321).recv(KEY))
    other = await started(manager.find(322).recv(KEY))
    manager.cleanup(321)
    with pytest.raises(AbortedError, match="Cleanup 321"):
        await waiting
    manager.find(322).send(KEY, "plum")
    assert (await other)[0] == "plum"


async def test_cleanup_all_forgets_every_step(manager: RendezvousMgr[Rendezvous]) -> None:
    rendezvous = manager.find(123)
    rendezvous.send(KEY, "peach")
    manager.find(124)
    manager.cleanup_all()
    with pytest.raises(AbortedError, match="Cleanup 123"):
        await rendezvous.recv(KEY)
    assert len(manager) == 0


async def test_a_step_that_was_cleaned_up_begins_anew(manager: RendezvousMgr[Rendezvous]) -> None:
    old = manager.find(1)
    manager.cleanup(1)
    manager.cleanup(1)
    assert manager.find(1) is not old
    assert manager.find(1).error is None
