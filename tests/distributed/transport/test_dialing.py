"""Dialing and listening: addresses, TLS, strangers, and what is left when all is closed."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import pickle
import socket
from pathlib import Path
from typing import Any

import pytest

from asyncexec.distributed.transport import dialing
from asyncexec.distributed.transport.dialing import dial, listen
from asyncexec.distributed.transport.identity import Expected
from asyncexec.distributed.transport.options import TransportOptions
from asyncexec.distributed.transport.security import Security, Tls
from asyncexec.framework.errors import (
    AbortedError,
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    OpError,
    UnauthenticatedError,
    UnavailableError,
)
from tests.distributed.transport.ends import (
    CHIEF,
    OPEN,
    WORKER,
    Recorder,
    address_of,
    both_kinds,
    connected,
    listening,
    until,
)

trustme = pytest.importorskip("trustme")

SECRET = Security("secret")


async def refused(kind: str, folder: Path, near: Security, far: Security, **options: Any) -> tuple[OpError, OpError]:
    """What both ends are told when there is no connection."""
    told: asyncio.Queue[OpError] = asyncio.Queue()
    async with listening(address_of(kind, folder), far, refused=told) as (listener, receivers):
        with pytest.raises(OpError) as raised:
            await dial(listener.address, CHIEF, near, Recorder, **options)
        at_far = await asyncio.wait_for(told.get(), 30)
        assert receivers.empty()
        assert listener.connections == []
    return raised.value, at_far


@both_kinds
@pytest.mark.parametrize(
    ("near", "far"), [(SECRET, Security("other")), (SECRET, OPEN), (OPEN, SECRET)], ids=["other", "far", "near"]
)
async def test_both_ends_are_told_of_tokens_that_differ(
    kind: str, near: Security, far: Security, tmp_path: Path
) -> None:
    errors = await refused(kind, tmp_path, near, far)
    assert [type(error) for error in errors] == [UnauthenticatedError] * 2
    assert "token" in str(errors[0])


async def test_both_ends_are_told_of_another_incarnation(tmp_path: Path) -> None:
    errors = await refused("unix", tmp_path, SECRET, SECRET, expects=Expected(WORKER.name, 3))
    assert [type(error) for error in errors] == [AbortedError] * 2
    assert f"{WORKER.name} has been started again" in str(errors[0])


async def test_ipv6(tmp_path: Path) -> None:
    if not socket.has_ipv6 or not _has_ipv6():
        pytest.skip("there is no IPv6 here")
    async with connected(address_of("tcp6", tmp_path)) as ends:
        assert ends.listener.address.startswith("tcp:[::1]:")
        ends.near.send(1)
        await ends.at_far.until(lambda at: at.messages)


def _has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


async def test_a_host_by_name() -> None:
    async with connected("tcp:localhost:0") as ends:
        assert not ends.listener.address.endswith(":0")


@pytest.mark.parametrize("where", ["unix:{folder}/nobody", "tcp:127.0.0.1:{port}"])
async def test_nobody_there(where: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
    with pytest.raises(UnavailableError, match="cannot connect"):
        await dial(where.format(folder=tmp_path, port=port), CHIEF, OPEN, Recorder)


async def test_an_address_in_use_is_refused(tmp_path: Path) -> None:
    for kind in ("unix", "tcp"):
        async with listening(address_of(kind, tmp_path)) as (listener, _):
            with pytest.raises(AlreadyExistsError, match="somebody listens there already"):
                await listen(listener.address, WORKER, OPEN, Recorder)
            connection = await dial(listener.address, CHIEF, OPEN, Recorder)
            await connection.close()


async def test_a_unix_socket_of_a_dead_process_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
        left.listen()
    assert path.is_socket()
    async with connected(f"unix:{path}"):
        assert path.stat().st_mode & 0o777 == 0o600
    assert not path.exists()


async def test_a_file_that_is_no_socket_stays(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.write_text("mine")
    with pytest.raises(AlreadyExistsError):
        await listen(f"unix:{path}", WORKER, OPEN, Recorder)
    assert path.read_text() == "mine"
    with pytest.raises(UnavailableError, match="cannot listen"):
        await listen(f"unix:{tmp_path}/no/folder", WORKER, OPEN, Recorder)


async def test_the_socket_of_another_listener_stays(tmp_path: Path) -> None:
    async with listening(address_of("unix", tmp_path)):
        os.unlink(tmp_path / "s")
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(tmp_path / "s"))
    assert (tmp_path / "s").is_socket()


# -- strangers --------------------------------------------------------------------------------------------------------


async def answer_to(address: str, data: bytes) -> bytes:
    """What a listener says to *data*, until it closes."""
    reader, writer = await asyncio.open_unix_connection(address.removeprefix("unix:"))
    writer.write(data)
    answer = b""
    with contextlib.suppress(ConnectionError):
        answer = await asyncio.wait_for(reader.read(), 30)
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    return answer


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 100_000, b"axtp" + b"\xff" * 5000])
async def test_garbage_is_not_answered(data: bytes, tmp_path: Path) -> None:
    told: asyncio.Queue[OpError] = asyncio.Queue()
    async with listening(address_of("unix", tmp_path), refused=told) as (listener, receivers):
        assert await answer_to(listener.address, data) == b""
        assert told.qsize() == 1
        assert receivers.empty()
        connection = await dial(listener.address, CHIEF, OPEN, Recorder)
        await connection.close()


async def test_a_listener_of_another_protocol_is_told() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 smtp\r\n")
        writer.close()

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(OpError, match=rf"tcp:{address}.*speaks another protocol"):
            await dial(address, CHIEF, OPEN, Recorder)


@pytest.mark.parametrize("end", ["near", "far"])
async def test_a_handshake_has_its_time(end: str, tmp_path: Path) -> None:
    quick = TransportOptions(handshake_timeout_s=0.02)
    told: asyncio.Queue[OpError] = asyncio.Queue()
    address = address_of("unix", tmp_path)
    if end == "far":
        async with listening(address, options=quick, refused=told) as (listener, _):
            assert await answer_to(listener.address, b"axtp") == b""
        assert "the handshake has not ended within 0.02 s" in str(told.get_nowait())
        return
    done = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        done.set()

    async with await asyncio.start_unix_server(say_nothing, tmp_path / "s"):
        with pytest.raises(UnavailableError, match=r"the handshake has not ended within 0\.02 s"):
            await dial(address, CHIEF, OPEN, Recorder, options=quick)
        await done.wait()


async def test_strangers_are_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialing, "MAX_STRANGERS", 3)
    async with listening(address_of("unix", tmp_path)) as (listener, _):
        path = listener.address.removeprefix("unix:")
        strangers = [await asyncio.open_unix_connection(path) for _ in range(5)]
        for reader, _ in strangers[:2]:  # the oldest have made room
            with contextlib.suppress(ConnectionError):
                assert await asyncio.wait_for(reader.read(), 30) == b""
        connection = await dial(listener.address, CHIEF, OPEN, Recorder)
        await connection.close()
        assert len(listener._links.all) <= 4
        for _, writer in strangers:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


async def test_a_cancelled_dial_leaves_nothing(tmp_path: Path) -> None:
    arrived, gone = asyncio.Event(), asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        arrived.set()
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()
        gone.set()

    async with await asyncio.start_unix_server(say_nothing, tmp_path / "s"):
        dialed = asyncio.create_task(dial(address_of("unix", tmp_path), CHIEF, OPEN, Recorder))
        await arrived.wait()
        dialed.cancel()
        with pytest.raises(asyncio.CancelledError):
            await dialed
        await gone.wait()


async def test_a_receiver_that_cannot_be_made_ends_the_dial(tmp_path: Path) -> None:
    def no_receiver(connection: object) -> Recorder:
        raise RuntimeError("no receiver")

    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context["exception"]))
    async with listening(address_of("unix", tmp_path)) as (listener, _):
        with pytest.raises(UnavailableError, match="no receiver"):
            await dial(listener.address, CHIEF, OPEN, no_receiver)
    assert [type(error) for error in reported] == [RuntimeError]


async def test_closing_a_listener_closes_what_it_took(tmp_path: Path) -> None:
    async with connected(address_of("unix", tmp_path)) as ends:
        assert ends.listener.connections == [ends.far]
        _, writer = await asyncio.open_unix_connection(tmp_path / "s")
        await until(lambda: len(ends.listener._links.all) == 2)
        await ends.listener.close()
        assert ends.listener._links.all == set()
        await ends.at_near.until(lambda at: at.lost)
        assert ends.at_far.lost == []
        assert ends.listener.connections == []
        with pytest.raises(UnavailableError, match="cannot connect"):
            await dial(ends.listener.address, CHIEF, OPEN, Recorder)
        await ends.listener.close()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


# -- TLS --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority() -> Any:
    return trustme.CA()


def files(authority: Any, folder: Path, *names: str) -> dict[str, Path]:
    folder.mkdir(exist_ok=True)
    issued = authority.issue_cert(*names)
    paths = {name: folder / name for name in ("certificate", "key", "ca")}
    issued.cert_chain_pems[0].write_to_path(paths["certificate"])
    issued.private_key_pem.write_to_path(paths["key"])
    authority.cert_pem.write_to_path(paths["ca"])
    return paths


async def test_tls_with_certificates_of_both_ends(authority: Any, tmp_path: Path) -> None:
    security = Security("secret", Tls.from_files(**files(authority, tmp_path, "127.0.0.1")))
    async with connected("127.0.0.1:0", security) as ends:
        large = b"x" * 3_000_000
        ends.near.send(1, large)
        ends.far.send(2, large)
        ends.near.send_tensor(1, "k", b"y" * 5_000_000)
        await ends.at_far.until(lambda at: at.messages and at.tensors)
        await ends.at_near.until(lambda at: at.messages)
        assert ends.at_far.messages == [(1, large)]
        assert ends.at_far.tensors[0][2] == b"y" * 5_000_000
        await ends.near.close()
        await ends.at_far.until(lambda at: at.lost)


async def test_certificates_may_have_a_name_of_their_own(authority: Any, tmp_path: Path) -> None:
    tls = Tls.from_files(**files(authority, tmp_path, "cluster.internal"), server_name="cluster.internal")
    async with connected("127.0.0.1:0", Security(None, tls)):
        pass


async def test_another_process_reads_the_files_of_the_same_names(authority: Any, tmp_path: Path) -> None:
    tls = Tls.from_files(**files(authority, tmp_path, "cluster.internal"), server_name="cluster.internal")
    there = pickle.loads(pickle.dumps(tls))
    assert there.server_name == "cluster.internal"
    async with connected("127.0.0.1:0", Security(None, there)):
        pass
    with pytest.raises(TypeError, match="from_files"):
        pickle.dumps(Tls(tls.server, tls.client))


async def test_a_unix_socket_needs_no_tls(authority: Any, tmp_path: Path) -> None:
    security = Security("secret", Tls.from_files(ca=files(authority, tmp_path, "x")["ca"]))
    async with connected(address_of("unix", tmp_path), security) as ends:
        ends.near.send(1)
        await ends.at_far.until(lambda at: at.messages)


@pytest.mark.parametrize("who", ["wrong listener", "wrong name", "wrong caller", "caller without", "plain caller"])
async def test_who_is_not_trusted_gets_no_connection(who: str, authority: Any, tmp_path: Path) -> None:
    stranger = trustme.CA()
    mine = files(authority, tmp_path / "mine", "127.0.0.1" if who != "wrong name" else "10.9.9.9")
    theirs = files(stranger, tmp_path / "theirs", "127.0.0.1")
    if who == "wrong caller":
        near = Tls.from_files(theirs["certificate"], theirs["key"], mine["ca"])
    elif who == "wrong listener":
        near = Tls.from_files(**theirs)
    elif who == "caller without":
        near = Tls.from_files(ca=mine["ca"])
    else:
        near = Tls.from_files(**mine)
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)  # asyncio tells of some handshakes
    options = TransportOptions(handshake_timeout_s=1.0)
    far = Security("secret", Tls.from_files(**mine))
    async with listening("127.0.0.1:0", far, options) as (listener, receivers):
        security = Security("secret", None if who == "plain caller" else near)
        with pytest.raises((UnauthenticatedError, UnavailableError, OpError)) as raised:
            await dial(listener.address, CHIEF, security, Recorder, options=options)
        if who in ("wrong listener", "wrong name"):
            assert isinstance(raised.value, UnauthenticatedError)
        assert receivers.empty()


async def test_listening_with_tls_needs_a_certificate(authority: Any, tmp_path: Path) -> None:
    security = Security(None, Tls.from_files(ca=files(authority, tmp_path, "x")["ca"]))
    with pytest.raises(FailedPreconditionError, match="needs a certificate"):
        await listen("127.0.0.1:0", WORKER, security, Recorder)


def test_files_that_are_none_are_told(authority: Any, tmp_path: Path) -> None:
    good = files(authority, tmp_path, "x")
    other = files(authority, tmp_path / "other", "x")
    with pytest.raises(NotFoundError, match="nowhere"):
        Tls.from_files(tmp_path / "nowhere", good["key"])
    with pytest.raises(NotFoundError, match="nowhere"):
        Tls.from_files(good["certificate"], good["key"], tmp_path / "nowhere")
    with pytest.raises(InvalidArgumentError, match="key"):
        Tls.from_files(good["certificate"], other["key"])
    (tmp_path / "garbage").write_text("garbage")
    with pytest.raises(InvalidArgumentError, match="garbage"):
        Tls.from_files(tmp_path / "garbage", good["key"])


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="unix sockets")
@pytest.mark.allow_blocking
async def test_a_socket_that_has_just_come_is_closed_with_the_listener(tmp_path: Path) -> None:
    """The event loop has taken it, and has not given it to the listener."""
    listener = await listen(f"unix:{tmp_path / 'at'}", WORKER, OPEN, Recorder)
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(str(tmp_path / "at"))
        for _ in range(2):
            await asyncio.sleep(0)
        await listener.close()
        gc.collect()  # what is not closed warns
        assert caller.recv(1) == b""
