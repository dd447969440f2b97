"""The Host header of browsers: a page whose name was made to lead to this machine may not ask."""

from __future__ import annotations

import socket

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from asyncexec.service.app import create_app
from asyncexec.service.http.hosts import Hosts
from asyncexec.service.server import serving
from tests.service.models import sums

ORIGIN = (b"origin", b"http://evil.example:8000")
KNOWN = "localhost LOCALHOST:8000 127.0.0.1:8000 [::1]:8000 192.168.0.7 Models.example models.example.:80".split()
UNKNOWN = ["evil.example:8000", "127.0.0.1.evil.example", "models.example.evil.example", "", "1"]


@pytest.mark.parametrize("host", [*KNOWN, *UNKNOWN])
def test_a_browser_asks_by_a_name_that_the_service_is_known_by(host: str) -> None:
    hosts = Hosts(["models.example"])
    given = [(b"accept", b"*/*"), (b"host", host.encode())]
    assert hosts.allow(given)  # a client that is no browser may call it what it likes
    for header in (ORIGIN, (b"sec-fetch-site", b"same-origin")):
        assert hosts.allow([*given, header]) is (host in KNOWN)


def test_a_browser_tells_a_host() -> None:
    assert not Hosts([]).allow([ORIGIN])


async def test_by_default_and_with_tokens_any_name_will_do() -> None:
    for app in (create_app({"m": sums()}), create_app({"m": sums()}, tokens=["a"], allowed_hosts=())):
        transport = httpx.ASGITransport(app)
        async with app, httpx.AsyncClient(transport=transport, base_url="http://evil.example") as client:
            headers = {"Origin": "http://evil.example", "Authorization": "Bearer a"}
            assert (await client.post("/v2/repository/index", headers=headers)).status_code == 200


@pytest.mark.allow_blocking
async def test_a_service_on_a_port_is_known_by_its_address_its_machine_and_names_that_are_given() -> None:
    async with serving({"m": sums()}, http_port=0, grpc_port=None, allowed_hosts=["models.example"]) as ports:
        port = ports.http
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            for host, status in {
                f"127.0.0.1:{port}": 200,
                f"{socket.gethostname()}:{port}": 200,
                "models.example": 200,
                f"evil.example:{port}": 403,
            }.items():
                headers = {"Host": host, "Origin": f"http://{host}"}
                answer = await client.post("/v2/repository/index", headers=headers)
                assert answer.status_code == status, host
            assert "--allowed-host" in answer.json()["error"]
            row = {"datatype": "FP32", "shape": [1, 3], "data": [1.0, 2.0, 3.0]}
            infer = {"inputs": [{"name": "x", **row}, {"name": "y", **row}]}
            for host, status in {"models.example": 200, f"evil.example:{port}": 403}.items():
                headers = {"Host": host, "Origin": f"http://{host}"}
                answer = await client.post("/v2/models/m/infer", headers=headers, json=infer)
                assert answer.status_code == status, answer.text
            plain = await client.post("/v2/repository/index", headers={"Host": f"evil.example:{port}"})
            assert plain.status_code == 200
        path = f"ws://127.0.0.1:{port}/v2/models/m/stream"
        evil = {"Host": f"evil.example:{port}", "Origin": f"http://evil.example:{port}"}
        with pytest.raises(InvalidStatus) as refused:
            await connect(path, additional_headers=evil)
        assert refused.value.response.status_code == 403
