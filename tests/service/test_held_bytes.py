"""The bytes that requests hold together, and what is refused past them."""

from __future__ import annotations

import httpx
import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.errors import UnavailableError
from asyncexec.service import held_bytes
from asyncexec.service.held_bytes import SMALL_BYTES, HeldBytes

LARGE = 2 * SMALL_BYTES


def test_a_request_is_refused_where_others_hold_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_bytes, "MOST_HELD_BYTES", 2 * LARGE)
    with HeldBytes() as first, HeldBytes() as second:
        first.grow_to(SMALL_BYTES)
        assert HeldBytes.total == 0  # small ones are not counted
        first.grow_to(LARGE)
        first.grow_to(SMALL_BYTES)
        second.grow_to(LARGE)
        assert HeldBytes.total == 2 * LARGE
        with pytest.raises(UnavailableError, match=f"holds {2 * LARGE} bytes of requests"):
            second.grow_to(LARGE + 1)
    assert HeldBytes.total == 0
    with HeldBytes() as alone:
        alone.grow_to(10 * LARGE)
    assert HeldBytes.total == 0


async def test_a_large_body_is_refused_for_the_time_being(monkeypatch: pytest.MonkeyPatch) -> None:
    with ax.Graph() as graph:
        ax.reduce_sum(ax.placeholder(ax.uint8, [None], name="x"), name="y")
    raw = np.ones(LARGE, np.uint8).tobytes()
    async with ax.service.create_app({"m": graph}) as app:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            headers = {"Inference-Header-Content-Length": "0"}
            monkeypatch.setattr(held_bytes, "MOST_HELD_BYTES", LARGE)
            with HeldBytes() as other:
                other.grow_to(LARGE)
                refused = await client.post("/v2/models/m/infer", content=raw, headers=headers)
            assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
            taken = await client.post("/v2/models/m/infer", content=raw, headers=headers)
            assert taken.status_code == 200
    assert HeldBytes.total == 0
