"""How much memory messages take once they are read, told before: what is refused, and what requests hold together."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.service import held_bytes
from asyncexec.service.grpc.parsed_size import parsed_bytes
from asyncexec.service.held_bytes import SMALL_BYTES, HeldBytes
from asyncexec.service.http.codec import MAX_JSON_BYTES
from asyncexec.service.protocol_messages import STATUS, message
from asyncexec.service.tf_serving.messages import message as serving_message
from tests.service.decoupled_models import Taps
from tests.service.test_grpc_front import Served, infer_request, serving

pytestmark = pytest.mark.usefixtures("grpc_library")

REQUEST = message("ModelInferRequest").DESCRIPTOR
MB = 2**20


def with_contents(**contents: Any) -> bytes:
    request = message("ModelInferRequest")(model_name="m")
    for name, values in contents.items():
        getattr(request.inputs.add(name="x").contents, name).extend(values)
    encoded: bytes = request.SerializeToString()
    return encoded


def test_the_data_of_tensors_takes_what_it_has() -> None:
    raw = message("ModelInferRequest")(model_name="m", raw_input_contents=[bytes(MB), bytes(MB)]).SerializeToString()
    assert 2 * MB < parsed_bytes(raw, REQUEST) < 2.01 * MB
    assert 4 * MB < parsed_bytes(with_contents(fp32_contents=[1.0] * MB), REQUEST) < 4.01 * MB
    assert 2 * MB < parsed_bytes(with_contents(bytes_contents=[bytes(MB)] * 2), REQUEST) < 2.01 * MB
    predict = serving_message("PredictRequest")()
    predict.inputs["x"].tensor_content = bytes(MB)
    assert MB < parsed_bytes(predict.SerializeToString(), predict.DESCRIPTOR) < 1.01 * MB


def test_all_else_grows() -> None:
    assert parsed_bytes(b"\x2a\x00" * MB, REQUEST) == 40 * 2 * MB  # empty inputs, as they were measured
    assert parsed_bytes(with_contents(bytes_contents=[b""] * MB), REQUEST) > 10 * 2 * MB  # as they were measured
    assert 8 * MB < parsed_bytes(with_contents(int64_contents=[1] * MB), REQUEST) < 8.01 * MB
    assert parsed_bytes(with_contents(bool_contents=[True] * MB), REQUEST) >= MB


def test_what_is_no_data_has_a_limit() -> None:
    empty = b"\x2a\x00" * (MAX_JSON_BYTES // 2)
    assert parsed_bytes(empty, REQUEST) == 40 * MAX_JSON_BYTES
    raw = message("ModelInferRequest")(raw_input_contents=[bytes(8 * MB)]).SerializeToString()
    with pytest.raises(InvalidArgumentError, match=f"has {MAX_JSON_BYTES + 7} bytes beside the data of tensors"):
        parsed_bytes(raw + empty + b"\x2a\x00", REQUEST)


@given(st.binary(max_size=400), st.binary(max_size=400))
def test_any_bytes_have_a_size(before: bytes, behind: bytes) -> None:
    data = before + with_contents(int_contents=[1] * 300) + behind
    assert len(data) <= parsed_bytes(data, REQUEST) <= 40 * len(data)


async def test_a_large_message_is_refused_for_the_time_being(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_bytes, "MOST_HELD_BYTES", 8 * SMALL_BYTES)
    raw = infer_request({"x": ("FP32", [2 * SMALL_BYTES], bytes(8 * SMALL_BYTES))}).SerializeToString()
    taps = Taps()
    async with serving(Served(taps.model)) as client:
        stream = client.stream()
        with HeldBytes() as other:
            other.grow_to(2 * SMALL_BYTES)
            await stream.write(raw)
            answer = await stream.read()
            assert "bytes of requests, and takes" in answer.error_message
            assert answer.infer_response.parameters[STATUS].string_param == "UNAVAILABLE"
        await stream.write(raw)
        assert "unexpected inference input 'x'" in (await stream.read()).error_message
        await stream.done_writing()
        assert await stream.code() is grpc.StatusCode.OK
    assert HeldBytes.total == 0
