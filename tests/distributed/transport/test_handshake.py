"""The handshake: who gets through, what both ends are told, and what garbage gets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncexec.distributed.transport import handshake as module
from asyncexec.distributed.transport.handshake import (
    HELLO,
    IDENTITY,
    LIBRARY,
    MAGIC,
    MAX_BODY_BYTES,
    PROTOCOL,
    READY,
    RECORD,
    REFUSAL,
    ForeignProtocolError,
    Handshake,
    refusal,
)
from asyncexec.distributed.transport.identity import Expected, Identity
from asyncexec.distributed.transport.security import Security
from asyncexec.framework.errors import (
    AbortedError,
    FailedPreconditionError,
    InvalidArgumentError,
    OpError,
    UnauthenticatedError,
)
from tests.distributed.transport.ends import CHIEF, WORKER

ANYBODY = Expected()
SECRET = Security("secret")


def dialing(security: Security = SECRET, expects: Expected = ANYBODY) -> Handshake:
    return Handshake(CHIEF, security, expects)


def listening(security: Security = SECRET) -> Handshake:
    return Handshake(WORKER, security, None)


def take(end: Handshake, data: bytes) -> bytes:
    """What *end* answers to *data*, which is whole records."""
    answers, view = b"", memoryview(data)
    while view:
        size, answer = end.receive(view)
        assert size > 0
        answers += answer
        view = view[size:]
    return answers


def shake(near: Handshake, far: Handshake) -> tuple[OpError | None, OpError | None]:
    """The handshake of both ends; the error of each."""
    errors: dict[Handshake, OpError] = {}
    data, ends = near.begin(), (far, near)
    while data:
        taker, other = ends
        try:
            data = take(taker, data)
        except OpError as error:
            errors[taker] = error
            data = b"" if other in errors else refusal(error)
        ends = other, taker
    return errors.get(near), errors.get(far)


def record(kind: int, content: Any, protocol: int = PROTOCOL) -> bytes:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return RECORD.pack(MAGIC, protocol, kind, len(body)) + body


@pytest.mark.parametrize("security", [SECRET, Security()], ids=["token", "open"])
@pytest.mark.parametrize("expects", [ANYBODY, Expected(WORKER.name), Expected(WORKER.name, WORKER.incarnation)])
def test_both_ends_learn_who_the_other_is(security: Security, expects: Expected) -> None:
    near, far = dialing(security, expects), listening(security)
    assert shake(near, far) == (None, None)
    assert (near.is_done, far.is_done) == (True, True)
    assert (near.peer, far.peer) == (WORKER, CHIEF)
    # Both are in one process, so the clocks are the same: off by half of the round trip at most.
    for round_trip, offset in (near.first_ping, far.first_ping):
        assert abs(offset) <= round_trip


def test_the_listening_end_is_done_only_when_the_other_is() -> None:
    near, far = dialing(), listening()
    identity = take(near, take(far, near.begin()))
    answer = take(far, identity)
    assert not far.is_done
    take(far, take(near, answer))
    assert far.is_done


@pytest.mark.parametrize(
    ("near", "far", "text"),
    [
        (SECRET, Security("other"), "different tokens"),
        (SECRET, Security(), "the listening one has none"),
        (Security(), SECRET, "the dialing one has none"),
    ],
)
def test_the_token_must_be_the_same(near: Security, far: Security, text: str) -> None:
    errors = shake(dialing(near), listening(far))
    assert [type(error) for error in errors] == [UnauthenticatedError] * 2
    assert all(text in str(error) for error in errors)


def test_a_listener_without_the_token_is_found_out() -> None:
    """It takes what it gets, and does not say that the proof is wrong."""
    near, far = dialing(), listening(Security("guess"))
    nonces = take(far, near.begin())
    identity = json.loads(take(near, nonces)[RECORD.size :])
    with pytest.raises(UnauthenticatedError, match="different tokens"):
        take(near, record(IDENTITY, identity))  # its own proof, sent back
    assert near.peer is None


def test_the_token_does_not_travel_and_no_proof_is_the_same_twice() -> None:
    said = []
    for _ in range(2):
        near, far = dialing(), listening()
        hello = near.begin()
        answer = take(far, hello)
        identity = take(near, answer)
        said.append((hello, answer, identity, take(far, identity)))
    assert all(b"secret" not in data for one in said for data in one)
    proofs = [json.loads(data[RECORD.size :])["proof"] for one in said for data in one[2:]]
    assert len(set(proofs)) == 4
    assert "secret" not in repr(SECRET)


@pytest.mark.parametrize("field", ["name", "incarnation", "role", "program"])
def test_the_proof_is_of_the_identity(field: str) -> None:
    near, far = dialing(), listening()
    content = json.loads(take(near, take(far, near.begin()))[RECORD.size :])
    content[field] = 5 if field == "incarnation" else "another"
    with pytest.raises(UnauthenticatedError):
        take(far, record(IDENTITY, content))


@pytest.mark.parametrize(
    ("expects", "text"),
    [
        (Expected("/job:worker/replica:0/task:9"), "/job:worker/replica:0/task:9 was expected"),
        (Expected(WORKER.name, 0xFF), "has been started again: incarnation a1, ff was expected"),
        (Expected(None, 0xFF), "has been started again"),
    ],
)
def test_another_process_than_expected_is_refused(expects: Expected, text: str) -> None:
    errors = shake(dialing(expects=expects), listening())
    assert [type(error) for error in errors] == [AbortedError] * 2
    assert all(text in str(error) for error in errors)


@pytest.mark.parametrize("end", ["dialing", "listening"])
@pytest.mark.parametrize("what", ["library", "protocol"])
def test_another_version_is_told_to_both_ends(end: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def with_other_version(call: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(module, *(("LIBRARY", "9.9.9") if what == "library" else ("PROTOCOL", 77)))
            return call()

    near, far = dialing(), listening()
    old, new = LIBRARY, "9.9.9" if what == "library" else LIBRARY
    if end == "dialing":
        hello, old, new = with_other_version(near.begin), new, old
    else:
        hello = near.begin()
    with pytest.raises(FailedPreconditionError) as first:
        take(far, hello) if end == "dialing" else with_other_version(lambda: take(far, hello))
    answer = refusal(first.value) if end == "dialing" else with_other_version(lambda: refusal(first.value))
    with pytest.raises(FailedPreconditionError) as second:
        take(near, answer) if end != "dialing" else with_other_version(lambda: take(near, answer))
    assert first.value.message == second.value.message
    assert f"the dialing one has {old} (protocol" in first.value.message
    assert f"the listening one {new} (protocol" in first.value.message
    if what == "protocol":
        assert "(protocol 77)" in first.value.message
        assert "(protocol 1)" in first.value.message


GARBAGE = {
    "http": b"GET / HTTP/1.1\r\n\r\n",
    "one byte": b"\x16",
    "zeros": bytes(100),
    "too long": RECORD.pack(MAGIC, PROTOCOL, HELLO, MAX_BODY_BYTES + 1),
    "no json": record(HELLO, b"\xff\xfe"),
    "deep json": record(HELLO, b"[" * 5000),
    "long number": record(HELLO, b'{"clock": ' + b"9" * 9000 + b"}"),
    "list": record(HELLO, []),
    "no version": record(HELLO, {}),
    "long version": record(HELLO, {"version": "1" * 300}),
    "no nonce": record(HELLO, {"version": LIBRARY}),
    "short nonce": record(HELLO, {"version": LIBRARY, "nonce": "ab" * 31}),
    "no hex": record(HELLO, {"version": LIBRARY, "nonce": "xy" * 32}),
    "identity first": record(IDENTITY, {}),
    "ready first": record(READY, {}),
    "no kind": record(9, {}),
}


@pytest.mark.parametrize("what", GARBAGE)
def test_garbage_is_not_answered(what: str) -> None:
    """Another version is a typed error, too; it is told by its head alone."""
    with pytest.raises((ForeignProtocolError, FailedPreconditionError)) as raised:
        take(listening(), GARBAGE[what])
    assert isinstance(raised.value, ForeignProtocolError)
    assert refusal(raised.value) == b""


@pytest.mark.parametrize("code", [0, 99, "x", None])
def test_a_malformed_refusal_is_no_error_of_ours(code: Any) -> None:
    with pytest.raises(ForeignProtocolError):
        take(dialing(), record(REFUSAL, {"code": code, "message": "m"}))


IDENTITIES = {
    "no name": {"name": 5},
    "long name": {"name": "x" * 257},
    "no incarnation": {"incarnation": "5"},
    "true as incarnation": {"incarnation": True},
    "large incarnation": {"incarnation": 2**64},
    "no proof": {"proof": None},
    "no role": {"role": []},
}


@pytest.mark.parametrize("what", IDENTITIES)
def test_a_malformed_identity_is_refused(what: str) -> None:
    near, far = dialing(), listening()
    content = json.loads(take(near, take(far, near.begin()))[RECORD.size :])
    with pytest.raises(ForeignProtocolError, match="malformed"):
        take(far, record(IDENTITY, content | IDENTITIES[what]))


def test_a_proof_in_another_alphabet_is_wrong() -> None:
    near, far = dialing(), listening()
    content = json.loads(take(near, take(far, near.begin()))[RECORD.size :])
    with pytest.raises(UnauthenticatedError):
        take(far, record(IDENTITY, content | {"proof": "\ud800ü"}))


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=50),
            st.builds(
                record,
                st.integers(0, 5),
                st.dictionaries(st.sampled_from(["version", "nonce"]), st.sampled_from([LIBRARY, "ab" * 32, ""])),
            ),
        ),
        max_size=4,
    )
)
def test_no_bytes_do_more_than_raise_a_typed_error(pieces: list[bytes]) -> None:
    end, data = listening(), b"".join(pieces)
    while data:
        try:
            size, answer = end.receive(memoryview(data))
        except (ForeignProtocolError, OpError):
            break
        if not size:
            break
        assert not answer
        data = data[size:]
    assert end.peer is None


def test_an_identity_has_bounded_parts() -> None:
    with pytest.raises(InvalidArgumentError, match="too long"):
        Identity("x" * 257, 1)
    with pytest.raises(InvalidArgumentError, match="64 bits"):
        Identity("x", 2**64)
    longest = Identity("\U0001f600" * 256, 2**64 - 1, "\0" * 256, "\ud800" * 256)
    near, far = Handshake(longest, SECRET, ANYBODY), listening()
    assert shake(near, far) == (None, None)
    assert far.peer == longest


def test_an_empty_token_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="empty"):
        Security("")
