"""InferenceApp: starting, starting again, closing, and tokens."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

import asyncexec as ax
from asyncexec.service.app import InferenceApp, Tokens, create_app
from asyncexec.service.models.repository import ModelRepository
from tests.service.models import sums, write_model


async def get(app: InferenceApp, path: str) -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service") as client:
        return await client.get(path)


async def test_what_cannot_start_is_started_again_by_the_next_request(tmp_path: Path) -> None:
    app = create_app(tmp_path / "models")
    with pytest.raises(ax.errors.NotFoundError, match="there is no folder of models"):
        await app.start()
    response = await get(app, "/v2/models/sum")
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")
    assert response.json() == {"error": "the service cannot start"}
    await asyncio.to_thread(write_model, tmp_path / "models" / "sum", sums())
    assert (await get(app, "/v2/models/sum")).status_code == 200
    await app.close()


async def test_close_ends_a_start_that_is_under_way(tmp_path: Path) -> None:
    await asyncio.to_thread(write_model, tmp_path / "sum", sums())
    for turns in range(1, 6):
        app = create_app(tmp_path)
        start = asyncio.create_task(app.start())
        for _ in range(turns):
            await asyncio.sleep(0)
        await app.close()
        with pytest.raises(ax.errors.UnavailableError, match="closed"):
            await start
        assert app.repository.models() == []


@pytest.mark.parametrize("value", [b"Bearer t", b"bearer t", b"BEARER   t", b"Bearer t "])
def test_the_scheme_of_a_token_has_no_case(value: bytes) -> None:
    assert Tokens(["t"]).allow(value)


@pytest.mark.parametrize("value", [None, b"", b"t", b"Bearer", b"Bearert", b"Basic t", b"Bearer tt", b"Bearer "])
def test_what_is_no_token(value: bytes | None) -> None:
    assert not Tokens(["t"]).allow(value)


async def test_health_is_told_while_models_are_loaded() -> None:
    loaded = asyncio.Event()

    class Slow(ModelRepository):
        async def start(self) -> None:
            await loaded.wait()
            await super().start()

    app = create_app(Slow(sources={"m": sums()}), tokens=["t"])
    assert (await get(app, "/v2/health/live")).json() == {"live": True}
    assert (await get(app, "/v2/health/ready")).status_code == 503
    assert (await get(app, "/v2/models/m")).status_code == 401  # and not when they are there
    loaded.set()
    await app.start()
    assert (await get(app, "/v2/health/ready")).json() == {"ready": True}
    await app.close()


async def test_a_service_that_ends_is_live_and_not_ready() -> None:
    app = create_app({"m": sums()})
    await app.start()
    assert (await get(app, "/v2/health/ready")).status_code == 200
    app.repository.stop_being_ready()
    assert (await get(app, "/v2/health/live")).json() == {"live": True}
    assert (await get(app, "/v2/health/ready")).json() == {"ready": False}
    assert (await get(app, "/v2/models/m")).status_code == 200  # what comes is answered until the end
    await app.close()


async def test_a_model_that_cannot_be_loaded_makes_a_service_unready_and_leaves_it_live(tmp_path: Path) -> None:
    await asyncio.to_thread(write_model, tmp_path / "sum", sums())
    await asyncio.to_thread((tmp_path / "broken" / "1").mkdir, parents=True)
    app = create_app(tmp_path)
    await app.start()
    assert (await get(app, "/v2/health/live")).status_code == 200
    assert (await get(app, "/v2/health/ready")).status_code == 503
    ready = {name: (await get(app, f"/v2/models/{name}/ready")).status_code for name in ("sum", "broken", "unknown")}
    assert ready == {"sum": 200, "broken": 503, "unknown": 503}
    await app.close()


async def test_a_page_of_another_site_cannot_ask_for_anything() -> None:
    app = create_app({"m": sums()})
    transport = httpx.ASGITransport(app)
    async with app, httpx.AsyncClient(transport=transport, base_url="http://service") as client:
        for path in ("/v2/models/m/infer", "/v2/repository/models/m/unload", "/v1/models/m:predict"):
            answer = await client.post(path, json={}, headers={"Sec-Fetch-Site": "cross-site"})
            assert (answer.status_code, answer.json()) == (
                403,
                {"error": "a page of another site may not ask for this"},
            )
            answer = await client.post(path, json={}, headers={"Sec-Fetch-Site": "same-origin"})
            assert answer.status_code != 403


def test_what_optimizes_signatures_is_imported_before_anybody_is_served() -> None:
    """An import takes long, and would hold the loop while requests are answered."""
    program = """
import asyncio, sys
import asyncexec as ax

async def main():
    with ax.Graph() as graph:
        ax.identity(ax.placeholder(ax.float32, [None], name="x"), name="y")
    async with ax.service.create_app({"m": graph}):
        print("asyncexec.passes.pass_graph" in sys.modules, "asyncexec.passes.fold_constants" in sys.modules)

asyncio.run(main())
"""
    told = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60)
    assert told.stdout.split() == ["True", "True"]
