"""gRPC's own health service, as probes ask it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from asyncexec.service.grpc import health
from asyncexec.service.grpc.reflection_messages import HEALTH, message
from asyncexec.service.models.files import ModelSource
from asyncexec.service.models.repository import ModelRepository
from asyncexec.service.protocol_messages import SERVICE
from asyncexec.service.server import serving
from tests.service.conftest import nothing_of_grpc_left
from tests.service.models import sums

pytestmark = [pytest.mark.allow_blocking, pytest.mark.usefixtures("grpc_library"), pytest.mark.one_of("loop")]


class Probe:
    """Asks for the health of a service."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel

    def begin(self, call: str, service: str | bytes) -> Any:
        request = service if isinstance(service, bytes) else self.request(service)
        read = message(HEALTH, "HealthCheckResponse").FromString
        kind = self.channel.unary_stream if call == "Watch" else self.channel.unary_unary
        return kind(f"/{HEALTH}.Health/{call}", None, read)(request, timeout=60)

    def request(self, service: str) -> bytes:
        data: bytes = message(HEALTH, "HealthCheckRequest")(service=service).SerializeToString()
        return data

    async def check(self, service: str = "") -> str:
        return name_of(await self.begin("Check", service))

    async def refused(self, call: str, service: str | bytes) -> grpc.StatusCode:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await (self.begin(call, service) if call == "Check" else self.begin(call, service).read())
        code: grpc.StatusCode = raised.value.code()
        return code


def name_of(response: Any) -> str:
    name: str = type(response).ServingStatus.Name(response.status)
    return name


@asynccontextmanager
async def probed(repository: ModelRepository, **options: Any) -> AsyncIterator[Probe]:
    async with (
        nothing_of_grpc_left(),
        serving(repository, http_port=0, grpc_port=0, **options) as ports,
        grpc.aio.insecure_channel(f"127.0.0.1:{ports.grpc}") as channel,
    ):
        yield Probe(channel)
        del channel


def broken() -> ModelSource:
    """A model that cannot be loaded."""
    return ModelSource(sums(), config={"input": [{"name": "none", "data_type": "TYPE_FP32", "dims": [1]}]})


async def test_check() -> None:
    async with probed(ModelRepository(sources={"m": sums()}), tokens=["secret"]) as probe:  # none is asked for
        assert [await probe.check(name) for name in ("", SERVICE, "liveness")] == ["SERVING"] * 3
        assert await probe.refused("Check", "other") is grpc.StatusCode.NOT_FOUND
        assert await probe.refused("Check", b"\xff") is grpc.StatusCode.INVALID_ARGUMENT
        watched = probe.begin("Watch", "")
        assert name_of(await watched.read()) == "SERVING"
        watched.cancel()


async def test_a_service_that_is_not_ready_is_live() -> None:
    async with probed(ModelRepository(sources={"m": sums(), "n": broken()})) as probe:
        assert await probe.check() == "NOT_SERVING"
        assert await probe.check(SERVICE) == "NOT_SERVING"
        assert await probe.check("liveness") == "SERVING"


async def test_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_WATCH_S", 0.01)
    repository = ModelRepository(sources={"m": sums()}, control="explicit")
    is_ready = True
    monkeypatch.setattr(ModelRepository, "is_ready", property(lambda _: is_ready))
    async with probed(repository) as probe:
        watched, unknown = probe.begin("Watch", ""), probe.begin("Watch", "other")
        assert name_of(await unknown.read()) == "SERVICE_UNKNOWN"
        assert name_of(await watched.read()) == "SERVING"
        is_ready = False
        assert name_of(await watched.read()) == "NOT_SERVING"
        is_ready = True
        assert name_of(await watched.read()) == "SERVING"
        assert await probe.refused("Watch", b"\xff") is grpc.StatusCode.INVALID_ARGUMENT
        unknown.cancel()
        assert not watched.done()
        is_ready = False
        repository.stop_being_ready()
        assert name_of(await watched.read()) == "NOT_SERVING"
        assert await watched.read() is grpc.aio.EOF


async def test_the_end_of_the_service_waits_for_no_watcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_WATCH_S", 0.01)
    async with grpc_channel_of_a_service() as (probe, end):
        watched = probe.begin("Watch", "")
        assert name_of(await watched.read()) == "SERVING"
        await asyncio.wait_for(end(), 60)  # requests have 600 seconds
        assert name_of(await watched.read()) == "NOT_SERVING"
        assert await watched.read() is grpc.aio.EOF


@asynccontextmanager
async def grpc_channel_of_a_service() -> AsyncIterator[tuple[Probe, Any]]:
    """A probe of a service, and what ends the service."""
    async with nothing_of_grpc_left():
        service = serving({"m": sums()}, http_port=0, grpc_port=0, drain_s=600)
        ports = await service.__aenter__()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{ports.grpc}") as channel:
            yield Probe(channel), lambda: service.__aexit__(None, None, None)
            del channel
