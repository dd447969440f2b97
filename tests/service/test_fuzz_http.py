"""Random bytes on the HTTP port: every answer is well-formed and of a status that bad input may have.

After each of them, a good request gets its answer.  The process of the service does not grow, and logs nothing.
"""

from __future__ import annotations

import gzip
import json
import socket
from collections.abc import Iterator
from typing import Any

import httptools
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.service.fuzz_service import ANSWERS, Running, running

pytestmark = [pytest.mark.fuzz, pytest.mark.allow_blocking, pytest.mark.timeout(900)]

MOST_GROWTH_MB = 150
IDLE_S = 0.05  # after this long without an answer, what has been sent is no complete request
ALLOWED = {100, 200, 400, 404, 405, 408, 413, 415, 501, 503, 504}
MODELS = [*ANSWERS, "sums", "halves", "none"]
fuzzing = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("raw"), max_body_bytes=2**22) as found:
        for name in ANSWERS:
            check_good(found, name)
        before_mb = found.rss_mb()
        yield found
        assert found.rss_mb() - before_mb < MOST_GROWTH_MB


class Answers:
    """The answers in what a server has sent."""

    def __init__(self) -> None:
        self.found: list[tuple[int, dict[bytes, bytes], bytes]] = []
        self.is_open = False
        self._headers: dict[bytes, bytes] = {}
        self._body = b""
        self.parser = httptools.HttpResponseParser(self)

    def on_message_begin(self) -> None:
        self.is_open, self._headers, self._body = True, {}, b""

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        self.is_open = False
        self.found.append((self.parser.get_status_code(), self._headers, self._body))


def send(service: Running, *parts: bytes, idle_s: float = 30.0) -> Answers:
    """What is answered to *parts* until the server closes the connection, or no answer begins for *idle_s*."""
    answers = Answers()
    with socket.create_connection(("127.0.0.1", service.http), 30) as connection:
        try:
            for part in parts:
                connection.sendall(part)
            while True:
                connection.settimeout(30 if answers.is_open else idle_s)
                data = connection.recv(2**16)
                if not data:
                    break
                answers.parser.feed_data(data)
        except TimeoutError:
            assert not answers.is_open
        except ConnectionError:  # the server has closed it, and there were bytes left to read
            return answers
    return answers


def check(service: Running, *parts: bytes) -> None:
    """Send *parts*, see that the answers are right for nonsense, and that a good request is answered after it."""
    for status, headers, body in send(service, *parts, idle_s=IDLE_S).found:
        assert status in ALLOWED, (status, body)
        if status >= 400 and headers[b"content-type"] == b"application/json":
            assert [type(value) for value in json.loads(body).values()] == [str] or b"ready" in body
    check_good(service, "floats")


def check_good(service: Running, name: str) -> None:
    datatype, shape, data, expected = ANSWERS[name]
    body = json.dumps({"inputs": [{"name": "x", "datatype": datatype, "shape": shape, "data": data}]}).encode()
    good = request(f"/v2/models/{name}/infer".encode(), body, b"Connection: close")
    ((status, _, answer),) = send(service, good).found
    assert (status, json.loads(answer)["outputs"][0]["data"]) == (200, expected)


def request(path: bytes, body: bytes, *headers: bytes, method: bytes = b"POST") -> bytes:
    lines = [b"%b %b HTTP/1.1" % (method, path), b"Host: a", b"Content-Length: %d" % len(body), *headers, b"", b""]
    return b"\r\n".join(lines) + body


# Requests

NUMBERS = st.one_of(
    st.integers(), st.integers(-(2**70), 2**70), st.floats(), st.sampled_from([2**31, 2**32, 2**63, 2**64, -1, 10**400])
)
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, st.text(max_size=5), st.just("é\0\ud800"))
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner))
DATATYPES = st.sampled_from(["FP32", "BYTES", "INT8", "BOOL", "FP64", "FP16", "UINT64", "X", "", "fp32"])
SIZES = st.one_of(st.integers(0, 4), NUMBERS)


def sometimes(strategy: st.SearchStrategy[Any], other: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Mostly *strategy*."""
    return st.one_of(strategy, strategy, strategy, other)


TENSORS = st.fixed_dictionaries(
    {
        "name": sometimes(st.sampled_from(["x", "y"]), VALUES),
        "datatype": sometimes(DATATYPES, VALUES),
        "shape": sometimes(st.lists(SIZES, max_size=3), VALUES),
    },
    optional={
        "data": sometimes(st.lists(SCALARS, max_size=4), VALUES),
        "parameters": st.fixed_dictionaries({}, optional={"binary_data_size": SIZES, "a": SCALARS}),
    },
)
OUTPUTS = st.fixed_dictionaries(
    {"name": sometimes(st.sampled_from(["y", "sum"]), VALUES)}, optional={"parameters": VALUES}
)
DOCUMENTS = st.fixed_dictionaries(
    {"inputs": sometimes(st.lists(TENSORS, max_size=3), VALUES)},
    optional={
        "id": SCALARS,
        "parameters": st.dictionaries(st.sampled_from(["timeout", "priority", "binary_data_output", "a"]), SCALARS),
        "outputs": st.lists(
            st.fixed_dictionaries(
                {"name": sometimes(st.sampled_from(["y", "sum"]), VALUES)}, optional={"parameters": VALUES}
            ),
            max_size=2,
        ),
        "instances": VALUES,
        "x": VALUES,
    },
)
ODD_JSON = st.sampled_from(
    [
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b'{"inputs":[NaN]}',
        b'{"inputs":[1e999,-0,1E+5,' + b"9" * 1000 + b"]}",
        b'{"inputs":[],"inputs":[{}]}',
        b'{"inputs":"\xff\xfe"}',
        b'{"inputs":"\\ud800"}',
        b"\xef\xbb\xbf{}",
        b"{} {}",
        b"",
    ]
)
BODIES = st.one_of(
    DOCUMENTS.map(lambda each: json.dumps(each).encode(errors="replace")),
    VALUES.map(lambda each: json.dumps(each).encode(errors="replace")),
    ODD_JSON,
    st.binary(max_size=40),
)
ENDS = st.sampled_from(
    [b"/infer", b"/versions/1/infer", b"/generate", b"/generate_stream", b":predict", b":classify", b":regress"]
)


@st.composite
def paths(draw: Any) -> bytes:
    end = draw(ENDS)
    root = b"/v1" if end.startswith(b":") else b"/v2"
    return b"%b/models/%b%b" % (root, draw(st.sampled_from(MODELS)).encode(), end)


HEADERS = st.lists(
    st.one_of(
        st.sampled_from(
            [
                b"Content-Encoding: gzip",
                b"Content-Encoding: deflate",
                b"Content-Encoding: br",
                b"Transfer-Encoding: chunked",
                b"Content-Length: 3",
                b"Connection: Upgrade\r\nUpgrade: h2c",
                b"Connection: Upgrade\r\nUpgrade: websocket",
                b"Connection: close",
                b"Expect: 100-continue",
                b"Accept-Encoding: gzip;q=nan, *;q=x",
                b"Authorization: \xff",
                b"Host: b",
                b"Trailer: a",
                b": a",
                b"A : a",
                b" a: a",
            ]
        ),
        SIZES.map(lambda size: b"Inference-Header-Content-Length: %b" % str(size)[:300].encode()),
        st.binary(max_size=12),
    ),
    max_size=2,
)


@st.composite
def mutated(draw: Any, data: bytes) -> bytes:
    """*data* with a few bytes changed, left out or repeated."""
    for _ in range(draw(st.integers(0, 4))):
        begin = draw(st.integers(0, len(data)))
        end = min(len(data), begin + draw(st.integers(0, 8)))
        piece = draw(
            st.one_of(st.binary(max_size=4), st.sampled_from([b"\r\n", b"\n", b"\0", b" ", data[begin:end] * 3]))
        )
        data = data[:begin] + piece + data[end:]
    return data


@fuzzing
@given(paths(), BODIES, HEADERS)
def test_bodies_and_headers(service: Running, path: bytes, body: bytes, headers: list[bytes]) -> None:
    check(service, request(path, body, *headers))


@fuzzing
@given(st.data())
def test_mutated_requests(service: Running, data: st.DataObject) -> None:
    whole = b"".join(
        request(data.draw(paths()), data.draw(BODIES), *data.draw(HEADERS)) for _ in range(data.draw(st.integers(1, 3)))
    )
    whole = data.draw(mutated(whole))
    cut = data.draw(st.integers(0, len(whole)))
    check(service, whole[:cut], whole[cut:])


@fuzzing
@given(st.data())
def test_binary_tensors(service: Running, data: st.DataObject) -> None:
    raw = data.draw(st.binary(max_size=40))
    head = json.dumps(data.draw(DOCUMENTS)).encode(errors="replace")
    told = data.draw(sometimes(st.just(len(head)), SIZES))
    header = b"Inference-Header-Content-Length: %b" % str(told)[:300].encode()
    check(service, request(b"/v2/models/%b/infer" % data.draw(st.sampled_from(MODELS)).encode(), head + raw, header))


@fuzzing
@given(st.binary(max_size=200))
def test_any_bytes(service: Running, data: bytes) -> None:
    check(service, data)


@settings(fuzzing, max_examples=10)
@given(st.sampled_from(ODD_JSON.elements), st.integers(0, 3))
def test_large_and_deep_bodies(service: Running, body: bytes, count: int) -> None:
    content = (body + b" " * 2**20) * count
    for coding in (b"identity", b"gzip"):
        sent = gzip.compress(content) if coding == b"gzip" else content
        check(service, request(b"/v2/models/floats/infer", sent, b"Content-Encoding: " + coding))


def test_bombs(service: Running) -> None:
    bomb = gzip.compress(gzip.compress(b"\0" * 2**28))
    for content in (bomb, gzip.compress(b" " * 2**26), gzip.compress(b"") * 10_000, bomb[:-10]):
        check(service, request(b"/v2/models/floats/infer", content, b"Content-Encoding: gzip"))


def test_many_requests_at_once(service: Running) -> None:
    small = request(b"/v2/health/live", b"", method=b"GET")
    with socket.create_connection(("127.0.0.1", service.http), 30) as connection:
        connection.settimeout(0.5)
        try:
            for _ in range(100):
                connection.sendall(small * 2_000)
        except TimeoutError:
            pass  # nobody reads the answers, so no more requests are taken
        else:
            pytest.fail("200 000 requests were taken, and no answer")
    check_good(service, "floats")
