"""TLS on both ports: with a certificate that the test makes."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
import trustme

import asyncexec as ax
from asyncexec.service.protocol_messages import SERVICE, message
from asyncexec.service.server import Tls, serving
from tests.service.conftest import nothing_of_grpc_left
from tests.service.models import rows, sums

# uvicorn closes its sockets in the loop
pytestmark = [pytest.mark.allow_blocking, pytest.mark.usefixtures("grpc_library"), pytest.mark.one_of("loop")]

INPUTS = [
    {"name": name, "datatype": "FP32", "shape": [1, 3], "data": rows(value).array.ravel().tolist()}
    for name, value in (("x", 5), ("y", 2))
]


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def tls(authority: trustme.CA, tmp_path: Path) -> Tls:
    issued = authority.issue_cert("127.0.0.1", "localhost")
    for name, content in (("key", issued.private_key_pem), ("certificate", issued.cert_chain_pems[0])):
        content.write_to_path(tmp_path / name)
    return Tls(tmp_path / "certificate", tmp_path / "key")


def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


async def test_both_ports_speak_tls(authority: trustme.CA, tls: Tls) -> None:
    options: dict[str, Any] = {"http_port": 0, "grpc_port": 0, "tls": tls}
    async with nothing_of_grpc_left(), serving({"m": sums()}, **options) as ports:
        url = f"https://127.0.0.1:{ports.http}"
        async with httpx.AsyncClient(verify=trusting(authority), base_url=url) as client:
            answer = await client.post("/v2/models/m/infer", json={"inputs": INPUTS})
        assert [each["data"] for each in answer.json()["outputs"]] == [[7.0] * 3, [3.0] * 3]
        roots = grpc.ssl_channel_credentials(authority.cert_pem.bytes())
        async with grpc.aio.secure_channel(f"localhost:{ports.grpc}", roots) as channel:
            call = channel.unary_unary(f"/{SERVICE}/ModelReady")
            told = await call(message("ModelReadyRequest")(name="m").SerializeToString())
        assert message("ModelReadyResponse").FromString(told).ready


async def test_what_cannot_be_trusted_is_not_called(tls: Tls) -> None:
    stranger = trustme.CA()
    options: dict[str, Any] = {"http_port": 0, "grpc_port": 0, "tls": tls}
    async with nothing_of_grpc_left(), serving({"m": sums()}, **options) as ports:
        async with httpx.AsyncClient(verify=trusting(stranger)) as client:
            with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                await client.get(f"https://127.0.0.1:{ports.http}/v2/health/live")
        roots = grpc.ssl_channel_credentials(stranger.cert_pem.bytes())
        async with grpc.aio.secure_channel(f"localhost:{ports.grpc}", roots) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await channel.unary_unary(f"/{SERVICE}/ServerLive")(b"")
        assert raised.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_clear_text_is_not_answered_where_there_is_tls(tls: Tls) -> None:
    options: dict[str, Any] = {"http_port": 0, "grpc_port": 0, "tls": tls}
    async with nothing_of_grpc_left(), serving({"m": sums()}, **options) as ports:
        async with httpx.AsyncClient() as client:
            with pytest.raises(httpx.TransportError):
                await client.get(f"http://127.0.0.1:{ports.http}/v2/health/live")
        async with grpc.aio.insecure_channel(f"127.0.0.1:{ports.grpc}") as channel:
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await channel.unary_unary(f"/{SERVICE}/ServerLive")(b"")
        assert raised.value.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("grpc_port", [0, None])
@pytest.mark.parametrize("given", ["another key", "no file", "no certificate"])
async def test_a_certificate_that_cannot_be_used(tls: Tls, tmp_path: Path, given: str, grpc_port: int | None) -> None:
    if given == "another key":
        trustme.CA().issue_cert("localhost").private_key_pem.write_to_path(tls.key)
    elif given == "no file":
        tls = Tls(tmp_path / "none", tls.key)
    else:
        tls.certificate.write_text("a")
    async with nothing_of_grpc_left(), asyncio.timeout(30):
        with pytest.raises(ax.errors.InvalidArgumentError, match="certificate"):
            async with serving({"m": sums()}, http_port=0, grpc_port=grpc_port, tls=tls):
                pass
