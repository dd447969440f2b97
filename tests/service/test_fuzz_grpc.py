"""Random bytes on the gRPC port: every call ends with a status that bad input may have.

After each of them, a good call gets its answer.  The process of the service does not grow, and logs nothing.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from asyncexec.service import protocol_messages
from asyncexec.service.grpc.front import grpc_handler
from asyncexec.service.models.repository import ModelRepository
from asyncexec.service.tf_serving import messages as serving_messages
from asyncexec.service.tf_serving.grpc import serving_grpc_handlers
from tests.service.fuzz_service import ANSWERS, Running, running

pytestmark = [
    pytest.mark.fuzz,
    pytest.mark.allow_blocking,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("grpc_library"),
]

MOST_GROWTH_MB = 150
TIMEOUT_S = 60
ALLOWED = {
    grpc.StatusCode.OK,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.FAILED_PRECONDITION,
}
STREAM = f"/{protocol_messages.SERVICE}/ModelStreamInfer"
REQUESTS = {
    "ModelStreamInfer": "ModelInferRequest",
    "Classify": "ClassificationRequest",
    "Regress": "RegressionRequest",
}
REQUESTS |= {"HandleReloadConfigRequest": "ReloadConfigRequest"}
fuzzing = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))


def methods() -> dict[str, Any]:
    """The classes of the requests of all calls, by the names of the calls."""
    repository = ModelRepository()
    found: dict[str, Any] = {}
    for handler in (grpc_handler(repository), *serving_grpc_handlers(repository)):
        for path in handler._method_handlers:
            _, service, name = path.split("/")
            message = protocol_messages.message if service == protocol_messages.SERVICE else serving_messages.message
            found[path] = message(REQUESTS.get(name, f"{name}Request"))
    return found


METHODS = methods()


@dataclass(frozen=True, slots=True)
class Asked:
    """A service and a channel to it."""

    service: Running
    channel: Any

    def status_of(self, path: str, *requests: bytes) -> grpc.StatusCode:
        """How the call *path* of *requests* ends."""
        call = self.channel.stream_stream(path)(iter(requests), timeout=TIMEOUT_S)
        with contextlib.suppress(grpc.RpcError):
            for _ in call:
                pass
        return call.code()

    def check(self, path: str, *requests: bytes) -> None:
        """Ask, see that the status is right for nonsense, and that a good call is answered after it."""
        status = self.status_of(path, *requests)
        assert status in ALLOWED, status
        self.check_good()

    def check_good(self) -> None:
        request = protocol_messages.message("ModelInferRequest")(model_name="floats")
        request.inputs.add(name="x", datatype="FP32", shape=[2])
        request.raw_input_contents.append(np.array([1.5, -2], np.float32).tobytes())
        call = self.channel.unary_unary(f"/{protocol_messages.SERVICE}/ModelInfer")
        answer = call(request.SerializeToString(), timeout=TIMEOUT_S)
        told = protocol_messages.message("ModelInferResponse").FromString(answer)
        assert told.raw_output_contents == request.raw_input_contents


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory, grpc_library: None) -> Iterator[Asked]:
    with (
        running(tmp_path_factory.mktemp("raw"), max_body_bytes=2**22) as service,
        grpc.insecure_channel(f"127.0.0.1:{service.grpc}") as channel,
    ):
        found = Asked(service, channel)
        for _ in range(20):
            found.check_good()
        before_mb = service.rss_mb()
        yield found
        assert service.rss_mb() - before_mb < MOST_GROWTH_MB


# Messages

TEXTS = {
    "model_name": [*ANSWERS, "sums", "none"],
    "name": [*ANSWERS, "x", "y", "none"],
    "datatype": ["FP32", "BYTES", "INT8", "BOOL", "X"],
    "key": ["x", "timeout", "shared_memory_region", "config"],
    "model_version": ["", "1", "x"],
}
INTEGERS = st.one_of(st.integers(0, 4), st.sampled_from([-1, 2**31 - 1, 2**31, 2**63 - 1, -(2**63), 2**64 - 1]))
BITS = {FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1), FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1)}
BITS |= {FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1), FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1)}
MOST_DEPTH = 5


@st.composite
def filled(draw: Any, kind: Any, depth: int = 0) -> Any:
    """A message of the class *kind* with some of its fields."""
    message = kind()
    for field in message.DESCRIPTOR.fields:
        if depth > MOST_DEPTH or not draw(st.booleans()):
            continue
        inner = field.message_type
        if inner is not None and inner.GetOptions().map_entry:
            key = draw(st.sampled_from(TEXTS["key"]))
            value = inner.fields_by_name["value"]
            if inner.fields_by_name["key"].cpp_type != FieldDescriptor.CPPTYPE_STRING:
                continue
            if value.message_type is None:
                getattr(message, field.name)[key] = draw(scalars(value))
            else:
                made = draw(filled(type(getattr(message, field.name)[key]), depth + 1))
                getattr(message, field.name)[key].MergeFrom(made)
        elif inner is not None and field.is_repeated:
            for _ in range(draw(st.integers(0, 2))):
                item = getattr(message, field.name).add()
                item.MergeFrom(draw(filled(type(item), depth + 1)))
        elif inner is not None:
            item = getattr(message, field.name)
            item.MergeFrom(draw(filled(type(item), depth + 1)))
        elif field.is_repeated:
            getattr(message, field.name).extend(draw(st.lists(scalars(field), max_size=3)))
        else:
            setattr(message, field.name, draw(scalars(field)))
    return message


def scalars(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    if field.cpp_type in BITS:
        low, high = BITS[field.cpp_type]
        return INTEGERS.map(lambda value: min(max(value, low), high))
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        return st.sampled_from([value.number for value in field.enum_type.values])
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return st.booleans()
    if field.cpp_type in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE):
        return st.floats(width=32)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return st.binary(max_size=12)
    return st.one_of(st.sampled_from(TEXTS.get(field.name, ["x"])), st.text(max_size=3))


def varint(value: int) -> bytes:
    digits = []
    while value > 0x7F:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*digits, value])


# Fields of wrong wire types, of lying lengths, unknown, without an end, and groups in groups.
ODD_FIELDS = st.builds(
    lambda number, wire, rest: varint(number << 3 | wire) + rest,
    st.one_of(st.integers(1, 20), st.sampled_from([0, 2**28, 2**29 - 1, 2**40])),
    st.integers(0, 7),
    st.one_of(
        st.binary(max_size=12),
        st.sampled_from([b"\xff" * 10, b"\xff" * 11, varint(2**31), varint(2**63), varint(3) + b"\xff\xfe\xfd"]),
    ),
)


@st.composite
def mutated(draw: Any, data: bytes) -> bytes:
    """*data* with a few bytes changed, left out, or repeated, and odd fields."""
    for _ in range(draw(st.integers(0, 3))):
        begin = draw(st.integers(0, len(data)))
        end = min(len(data), begin + draw(st.integers(0, 6)))
        piece = draw(st.one_of(st.binary(max_size=4), ODD_FIELDS, st.just(data[begin:end] * 3)))
        data = data[:begin] + piece + data[end:]
    return data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data


@pytest.mark.parametrize("path", METHODS)
@fuzzing
@given(st.data())
def test_messages(asked: Asked, path: str, data: st.DataObject) -> None:
    message = data.draw(filled(METHODS[path])).SerializeToString()
    asked.check(path, data.draw(mutated(message)))


@settings(fuzzing, max_examples=100)
@given(st.data())
def test_requests_to_models(asked: Asked, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from([f"/{protocol_messages.SERVICE}/ModelInfer", STREAM]))
    name = data.draw(st.sampled_from([*ANSWERS, "sums", "halves"]))
    messages = []
    for _ in range(data.draw(st.integers(1, 3)) if path == STREAM else 1):
        message = data.draw(filled(METHODS[path]))
        message.model_name, message.model_version = name, ""
        messages.append(data.draw(mutated(message.SerializeToString())))
    asked.check(path, *messages)


@pytest.mark.parametrize("path", [path for path in METHODS if path.endswith(("Infer", "Predict", "Classify"))])
def test_odd_messages(asked: Asked, path: str) -> None:
    descriptor: Descriptor = METHODS[path].DESCRIPTOR
    for field in descriptor.fields:
        tag = varint(field.number << 3 | 2)
        deep = b""
        for _ in range(1000):
            deep = tag + varint(len(deep)) + deep
        many = (tag + b"\0") * 500_000
        groups = varint(field.number << 3 | 3) * 100_000
        for odd in (deep, many, groups, tag + varint(2**31 - 1), tag * 3, b"\xff" * 1000):
            asked.check(path, odd)


# HTTP/2

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
END_STREAM, END_HEADERS = 1, 4


def frame(kind: int, payload: bytes = b"", flags: int = 0, stream: int = 0, length: int | None = None) -> bytes:
    size = len(payload) if length is None else length
    return struct.pack(">I", size)[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def header_block(path: bytes = b"/inference.GRPCInferenceService/ServerLive", **others: bytes) -> bytes:
    pairs = {b":method": b"POST", b":scheme": b"http", b":path": path, b":authority": b"a"}
    pairs |= {b"content-type": b"application/grpc", b"te": b"trailers"}
    pairs |= {name.encode(): value for name, value in others.items()}
    return b"".join(b"\0%c%b%c%b" % (len(name), name, len(value), value) for name, value in pairs.items())


def call(stream: int, body: bytes = b"\0\0\0\0\0") -> bytes:
    head = frame(HEADERS, header_block(), END_HEADERS, stream)
    return head + frame(DATA, body, END_STREAM, stream)


START = PREFACE + frame(SETTINGS)
ODD = {
    "garbage": b"\0" * 1000,
    "HTTP/1": b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "TLS": bytes.fromhex("1603010200010001fc0303"),
    "a preface alone": PREFACE[:10],
    "garbage after the preface": PREFACE + bytes(range(256)) * 10,
    "a large frame": START + frame(DATA, b"", length=2**24 - 1) + b"a" * 2**16,
    "data of no stream": START + frame(DATA, b"abc", stream=1),
    "stream 0": START + frame(HEADERS, header_block(), END_HEADERS, 0),
    "an even stream": START + frame(HEADERS, header_block(), END_HEADERS, 2),
    "garbage as headers": START + frame(HEADERS, b"\xff" * 100, END_HEADERS, 1),
    "headers without an end": START + frame(HEADERS, b"", 0, 1) + frame(CONTINUATION, b"\0\1a\1b" * 1000, 0, 1) * 500,
    "long headers": START + frame(HEADERS, header_block() + b"\0\1a\x7f\x81\x7f" + b"b" * 16000, END_HEADERS, 1) * 10,
    "settings": START + frame(SETTINGS, b"\0\4\xff\xff\xff\xff") + frame(SETTINGS, b"\0") + frame(SETTINGS) * 10_000,
    "pings": START + frame(PING, b"a" * 8) * 10_000,
    "windows": START + frame(WINDOW, b"\0\0\0\0") + frame(WINDOW, b"\x7f\xff\xff\xff") * 10,
    "a pushed stream": START + frame(PUSH, b"\0\0\0\2" + header_block(), END_HEADERS, 1),
    "an unknown frame": START + frame(200, b"a" * 100, 255, 1) * 100 + call(1),
    "reset": START + b"".join(call(i)[:-14] + frame(RST, b"\0\0\0\x08", 0, i) for i in range(1, 10_000, 2)),
    "reset after all": START + b"".join(call(i) + frame(RST, b"\0\0\0\x08", 0, i) for i in range(1, 10_000, 2)),
    "a lying length": START + call(1, b"\0\xff\xff\xff\xff"),
    "a short message": START + call(1, b"\0\0\0\0\x09abc"),
    "half a length": START + call(1, b"\0\0"),
    "compressed, but not told": START + call(1, b"\1\0\0\0\3abc"),
    "two messages": START + call(1, b"\0\0\0\0\0" * 2),
    "streams": START + b"".join(frame(HEADERS, header_block(), END_HEADERS, i) for i in range(1, 4_000, 2)),
}


@pytest.mark.parametrize("sent", ODD.values(), ids=ODD.keys())
def test_odd_frames(asked: Asked, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", asked.service.grpc), TIMEOUT_S) as connection:
        connection.settimeout(0.5)
        with contextlib.suppress(TimeoutError, ConnectionError):
            connection.sendall(sent)
            while connection.recv(2**16):
                pass
        asked.check_good()
    asked.check_good()


@settings(fuzzing, max_examples=100)
@given(
    st.lists(
        st.builds(frame, st.integers(0, 12), st.binary(max_size=30), st.integers(0, 255), st.integers(0, 5)), max_size=6
    )
)
def test_frames(asked: Asked, frames: list[bytes]) -> None:
    with socket.create_connection(("127.0.0.1", asked.service.grpc), TIMEOUT_S) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(START + b"".join(frames))
        asked.check_good()
