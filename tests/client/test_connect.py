"""``ax.connect``: where a server is, who may ask, what it serves; and that nothing stays behind."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import trustme

import asyncexec as ax
from asyncexec.service.server import Tls
from tests.client.servers import mixed, served
from tests.service.models import sums
from tests.service.test_grpc_front import Gate

pytestmark = [pytest.mark.usefixtures("grpc_library"), pytest.mark.allow_blocking, pytest.mark.one_of("loop")]

X = np.ones((1, 3), np.float32)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        (
            "http://localhost:8000",
            "scheme of 'http://localhost:8000' is 'http'\n  hint: there are grpc:// and grpcs://",
        ),
        ("localhost:8001", "scheme of 'localhost:8001' is 'localhost'"),
        ("grpc://localhost", "is not a scheme, a host and a port\n  hint: grpc://localhost:8001"),
        ("grpc://:8001", "is not a scheme, a host and a port"),
        ("grpc://localhost:port", "is no URL"),
        ("grpc://[::1:8001", "is no URL"),
        ("grpc://localhost:8001/models", "is not a scheme, a host and a port"),
        ("grpc://me@localhost:8001", "is not a scheme, a host and a port"),
        (8001, "is no URL"),
    ],
)
def test_what_is_no_url(url: Any, text: str) -> None:
    with pytest.raises(ax.errors.InvalidArgumentError, match=text):
        ax.connect(url, model="m")


def test_arguments_that_do_not_fit_each_other() -> None:
    with pytest.raises(ax.errors.InvalidArgumentError, match="certificates are for encrypted connections"):
        ax.connect("grpc://localhost:1", root_certificates="roots.pem")
    with pytest.raises(ax.errors.InvalidArgumentError, match="which needs a model"):
        ax.connect("grpc://localhost:1", version="1")  # type: ignore[call-overload]
    for model in ("", 3, "\udc80"):
        with pytest.raises(ax.errors.InvalidArgumentError, match="model is the name of a model, not"):
            ax.connect("grpc://localhost:1", model=model)  # type: ignore[call-overload]
    with pytest.raises(ax.errors.InvalidArgumentError, match="version is text, such as '2', not 2"):
        ax.connect("grpc://localhost:1", model="m", version=2)  # type: ignore[call-overload]
    for token in ("", "ü", "a\nb", 3):
        with pytest.raises(ax.errors.InvalidArgumentError, match="a token has printable characters"):
            ax.connect("grpc://localhost:1", token=token)  # type: ignore[call-overload]
    for timeout in (0, -1.0, float("nan"), "1", True):
        for options in ({}, {"model": "m"}):
            with pytest.raises(ax.errors.InvalidArgumentError, match="a timeout is a number of seconds above 0, not "):
                ax.connect("grpc://localhost:1", timeout=timeout, **options)  # type: ignore[call-overload]


@pytest.mark.parametrize("library", ["grpc", "google.protobuf"])
def test_a_library_that_is_not_installed(library: str) -> None:
    with (
        mock.patch.dict(sys.modules, {library: None}),
        pytest.raises(ax.errors.MissingExtraError, match=r'pip install "asyncexec\[client\]"'),
    ):
        ax.connect("grpc://localhost:1")


async def test_what_a_server_serves() -> None:
    async with served({"m": mixed(), "n": sums()}) as url:
        server = await ax.connect(url)
        assert (server.url, server.name) == (url, "asyncexec")
        assert repr(server) == f"<RemoteServer asyncexec {server.version} at {url}>"
        states = await server.models()
        assert [(each.name, each.version, each.state, each.reason) for each in states] == [
            ("m", "1", "READY", ""),
            ("n", "1", "READY", ""),
        ]
        assert await server.is_ready()
        assert [await server.is_ready(name) for name in ("m", "none")] == [True, False]
        assert not await server.is_ready("m", "2")
        async with server.session("m") as one, server.session("n", "1", python_scalars=True) as other:
            assert await one.run("total", {"x": X}) == 3
            np.testing.assert_array_equal(await other.run("sum", {"x": X, "y": X}), X * 2)
        with pytest.raises(ax.errors.CancelledError, match="Session has been closed"):
            await one.run("total", {"x": X})
        kept = await server.session("m")
        await server.close()
        assert repr(server).endswith(", closed>")
        with pytest.raises(ax.errors.CancelledError, match="Session has been closed"):
            await kept.run("total", {"x": X})
        with pytest.raises(ax.errors.CancelledError, match="closed"):
            await server.models()
        with pytest.raises(ax.errors.CancelledError, match="closed"):
            server.session("m")


async def test_the_end_of_a_server_ends_the_runs_of_its_sessions() -> None:
    gate = Gate()
    async with served({"m": gate.model.session.graph}) as url:
        async with ax.connect(url) as server:
            session = await server.session("m")
            run = asyncio.ensure_future(session.run("y", {"x": 1}))
            await gate.take(gate.begun, 1)
        with pytest.raises(ax.errors.CancelledError, match="Session has been closed"):
            await run
    await gate.model.close()


async def test_tokens() -> None:
    async with served({"m": mixed()}, tokens=["secret"]) as url:
        for token in (None, "other"):
            with pytest.raises(ax.errors.UnauthenticatedError, match="unauthorized"):
                await ax.connect(url, model="m", token=token)
            with pytest.raises(ax.errors.UnauthenticatedError, match="unauthorized"):
                await ax.connect(url, token=token)
        async with ax.connect(url, model="m", token="secret") as session:
            assert await session.run("total", {"x": X}) == 3
            async with session.stream("total") as stream:
                await stream.send({"x": X})
                assert await anext(stream) == 3


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    """One for 127.0.0.1 that is signed by itself."""
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    made = authority.issue_cert("127.0.0.1")
    made.private_key_pem.write_to_path(str(folder / "key.pem"))
    for i, part in enumerate(made.cert_chain_pems):
        part.write_to_path(str(folder / "certificate.pem"), append=i > 0)
    authority.cert_pem.write_to_path(str(folder / "roots.pem"))
    return Tls(folder / "certificate.pem", folder / "key.pem")


async def test_an_encrypted_connection(certificate: Tls) -> None:
    roots = certificate.key.with_name("roots.pem")
    async with served({"m": mixed()}, tls=certificate) as url:
        async with ax.connect(url, model="m", root_certificates=roots) as session:
            assert await session.run("total", {"x": X}) == 3
        with pytest.raises(ax.errors.UnavailableError):
            await ax.connect(url, model="m")  # nobody has told that this authority is to be trusted
        with pytest.raises(ax.errors.UnavailableError):
            await ax.connect(url.replace("grpcs", "grpc"), model="m", timeout=10)


async def test_certificates_that_cannot_be_read(tmp_path: Path) -> None:
    for path, kind in ((tmp_path / "none", ax.errors.NotFoundError), (tmp_path, ax.errors.InvalidArgumentError)):
        with pytest.raises(kind, match=f"cannot read {path}"):
            await ax.connect("grpcs://127.0.0.1:1", root_certificates=path)


async def test_a_session_is_for_one_event_loop() -> None:
    async with served({"m": mixed()}) as url, ax.connect(url, model="m") as session:

        async def use() -> None:
            with pytest.raises(ax.errors.FailedPreconditionError, match="connected in another event loop"):
                await session.run("total", {"x": X})

        await asyncio.to_thread(asyncio.run, use())


async def run_and_stream() -> None:
    async with served({"m": mixed()}) as url, ax.connect(url, model="m") as session:
        assert await session.run("total", {"x": X}) == 3
        async with session.stream("total") as stream:
            await stream.send({"x": X})
            assert await anext(stream) == 3
        assert [each async for each in session.map("total", [{"x": X}] * 3)] == [3, 3, 3]
    assert asyncio.all_tasks() == {asyncio.current_task()}


def loops() -> list[Callable[[], asyncio.AbstractEventLoop]]:
    if sys.platform == "win32":
        return [asyncio.new_event_loop] * 2
    import uvloop

    return [asyncio.new_event_loop, uvloop.new_event_loop, asyncio.new_event_loop]


def test_several_event_loops_one_after_the_other() -> None:
    for factory in loops():
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(run_and_stream())
