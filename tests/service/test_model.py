"""Models: what they take and refuse, batches, deadlines, warm-up, statistics."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.service.models.files import ModelSource
from asyncexec.service.models.model import Model
from asyncexec.service.requests import InferRequest, InferTensor
from tests.service.models import model_of, rows, sums, until


async def test_all_outputs_and_those_that_are_wanted() -> None:
    model = model_of(sums())
    every = await model.infer(InferRequest("m", {"x": rows(5), "y": rows(2)}, id="a"))
    assert list(every.outputs) == ["sum", "diff"]
    assert (every.model_name, every.model_version, every.id) == ("m", "1", "a")
    assert every.outputs["sum"].array.tolist() == [[7.0] * 3]
    one = await model.infer(InferRequest("m", {"x": rows(5), "y": rows(2)}, ["diff"]))
    assert list(one.outputs) == ["diff"]
    await model.close()


@pytest.mark.parametrize(
    ("inputs", "outputs", "told"),
    [
        ({"x": rows(1)}, None, "expected 2 inputs but got 1 inputs for model 'm'"),
        ({"x": rows(1), "y": rows(1), "z": rows(1)}, None, "unexpected inference input 'z' for model 'm'"),
        ({"x": rows(1), "y": rows(1)}, ["z"], "unexpected inference output 'z' for model 'm'"),
        ({"x": rows(1), "y": rows(1)}, ["sum", "sum"], "output 'sum' already exists in request"),
        (
            {"x": InferTensor("INT32", np.zeros((1, 3), np.int32)), "y": rows(1)},
            None,
            "inference input 'x' data-type is 'INT32', but model 'm' expects 'FP32'",
        ),
        (
            {"x": rows(1, 1, 4), "y": rows(1)},
            None,
            "unexpected shape for input 'x' for model 'm'. Expected [-1,3], got",
        ),
        ({"x": InferTensor("FP32", np.float32(1)), "y": rows(1)}, None, "unexpected shape for input 'x'"),
    ],
)
async def test_requests_that_do_not_fit_are_refused(inputs: Any, outputs: Any, told: str) -> None:
    model = model_of(sums())
    with pytest.raises(ax.errors.InvalidArgumentError) as raised:
        await model.infer(InferRequest("m", inputs, outputs))
    assert told in raised.value.message
    assert model.statistics.fail.count == 1
    assert (await model.infer(InferRequest("m", {"x": rows(1), "y": rows(1)}))).outputs["diff"].array.sum() == 0
    await model.close()


async def test_calls_of_a_batching_model_share_runs() -> None:
    model = model_of(sums(), max_batch_size=8, dynamic_batching={"max_queue_delay_microseconds": 1_000_000})
    calls = [model.infer(InferRequest("m", {"x": rows(i, 2), "y": rows(1, 2)})) for i in range(8)]
    found = await asyncio.gather(*calls)
    assert [each.outputs["sum"].array.tolist() for each in found] == [[[i + 1.0] * 3] * 2 for i in range(8)]
    assert model.num_runs == 2  # of eight rows each
    assert (model.statistics.success.count, model.statistics.inference_count) == (8, 16)
    await model.close()


async def test_a_batch_is_no_larger_than_the_model_takes() -> None:
    model = model_of(sums(), max_batch_size=2)
    with pytest.raises(ax.errors.InvalidArgumentError, match="batch-size must be <= 2 for 'm', and is 3"):
        await model.infer(InferRequest("m", {"x": rows(1, 3), "y": rows(1, 3)}))
    with pytest.raises(ax.errors.InvalidArgumentError, match="differ in their batch size"):
        await model.infer(InferRequest("m", {"x": rows(1, 2), "y": rows(1, 1)}))
    await model.close()


async def test_a_call_of_more_rows_than_are_preferred_runs_alone() -> None:
    model = model_of(sums(), max_batch_size=4, dynamic_batching={"preferred_batch_size": [2]})
    calls = [model.infer(InferRequest("m", {"x": rows(1, count), "y": rows(2, count)})) for count in (1, 3, 4, 1)]
    found = [each.outputs["sum"].array for each in await asyncio.gather(*calls)]
    assert [len(each) for each in found] == [1, 3, 4, 1]
    assert (np.concatenate(found) == 3).all()
    assert (model.num_runs, sorted(model.batch_sizes)) == (3, [2, 3, 4])
    await model.close()


async def test_a_call_without_rows_is_no_part_of_a_batch() -> None:
    with ax.Graph() as graph:
        ax.identity(ax.placeholder(ax.float32, None, name="x"), name="y")
    model = model_of(graph, max_batch_size=4, dynamic_batching={})
    inputs = {"x": InferTensor("FP32", np.array(3, np.float32))}
    assert (await model.infer(InferRequest("m", inputs))).outputs["y"].array == 3
    await model.close()


@pytest.mark.parametrize(("made", "shape"), [(ax.reduce_sum, []), (lambda x: x[1:], [1, 3])])
async def test_an_output_without_a_row_for_each_is_a_fault_of_the_model(made: Any, shape: list[int]) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, 3], name="x")
        ax.identity(x, name="good")
        ax.identity(made(x), name="bad")
    model = model_of(graph, max_batch_size=4, dynamic_batching={})
    with pytest.raises(ax.errors.InternalError) as raised:
        await model.infer(InferRequest("m", {"x": rows(1, 2)}))
    told = f"output 'bad' of model 'm' has the shape {shape} for a batch of 2 rows"
    assert raised.value.message == told
    await model.close()


async def test_one_that_fails_touches_no_other_of_its_batch() -> None:
    model = model_of(sums(), max_batch_size=4, dynamic_batching={"max_queue_delay_microseconds": 1_000_000})
    good = [asyncio.create_task(model.infer(InferRequest("m", {"x": rows(i), "y": rows(1)}))) for i in range(4)]
    with pytest.raises(ax.errors.InvalidArgumentError):
        await model.infer(InferRequest("m", {"x": rows(1, 1, 9), "y": rows(1)}))
    assert [(await each).outputs["diff"].array[0, 0] for each in good] == [-1, 0, 1, 2]
    await model.close()


def waiting(begun: asyncio.Event, released: asyncio.Event) -> ModelSource:
    """A model that waits until it is *released*."""

    @ax.op
    async def wait_for(x: float) -> float:
        begun.set()
        await released.wait()
        return x

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        y = wait_for(x)
    return ModelSource(graph, outputs={"y": y})


def scalar() -> dict[str, InferTensor]:
    return {"x": InferTensor("FP64", np.array(1.5))}


async def test_a_deadline_and_a_caller_that_leaves_end_the_run() -> None:
    begun, released = asyncio.Event(), asyncio.Event()
    model = model_of(waiting(begun, released))
    with pytest.raises(ax.errors.DeadlineExceededError):
        await model.infer(InferRequest("m", scalar(), parameters={"timeout": 1000}))
    call = asyncio.create_task(model.infer(InferRequest("m", scalar())))
    begun.clear()
    await begun.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (model.statistics.fail.count, model.statistics.cancel.count) == (1, 1)
    assert model.session.statistics().running_steps == 0
    await model.close()


@pytest.mark.parametrize("timeout", ["soon", -1, True, 1.5])
async def test_a_timeout_that_is_none(timeout: Any) -> None:
    model = model_of(sums())
    with pytest.raises(ax.errors.InvalidArgumentError, match="'timeout' is a number of microseconds"):
        await model.infer(InferRequest("m", {"x": rows(1), "y": rows(1)}, parameters={"timeout": timeout}))
    await model.close()


async def test_a_queue_that_is_full_refuses() -> None:
    begun, released = asyncio.Event(), asyncio.Event()
    policy = {"default_queue_policy": {"max_queue_size": 1}}
    source = waiting(begun, released)
    model = model_of(source, instance_group=[{"count": 1}], dynamic_batching=policy)
    running = asyncio.create_task(model.infer(InferRequest("m", scalar())))
    await begun.wait()
    queued = asyncio.create_task(model.infer(InferRequest("m", scalar())))
    await until(lambda: model.session.statistics().queued_steps == 1)
    with pytest.raises(ax.errors.UnavailableError, match="Exceeds maximum queue size"):
        await model.infer(InferRequest("m", scalar()))
    released.set()
    assert [float((await each).outputs["y"].array) for each in (running, queued)] == [1.5, 1.5]
    await model.close()


async def test_closing_lets_calls_end() -> None:
    begun, released = asyncio.Event(), asyncio.Event()
    model = model_of(waiting(begun, released))
    call = asyncio.create_task(model.infer(InferRequest("m", scalar())))
    await begun.wait()
    closing = asyncio.create_task(model.close())
    await asyncio.sleep(0)
    released.set()
    await closing
    assert float((await call).outputs["y"].array) == 1.5


async def test_warm_up_runs_what_the_config_says() -> None:
    inputs = {name: {"data_type": "TYPE_FP32", "dims": [3], "zero_data": True} for name in ("x", "y")}
    warm_up = [{"name": "w", "batch_size": 2, "count": 3, "inputs": inputs}]
    model = model_of(sums(), max_batch_size=4, model_warmup=warm_up)
    await model.warm_up()
    assert (model.session.statistics().completed_steps, model.num_runs, model.statistics.success.count) == (3, 0, 0)
    await model.close()


async def test_an_input_that_the_graph_has_a_value_for_may_be_left_out() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int32, [None], name="x")
        k = ax.placeholder_with_default(ax.constant(10, ax.int32), [], name="k")
        ax.multiply(x, k, name="y")
    model = model_of(graph)
    x_value = InferTensor("INT32", np.array([1, 2], np.int32))
    assert (await model.infer(InferRequest("m", {"x": x_value}))).outputs["y"].array.tolist() == [10, 20]
    both = {"x": x_value, "k": InferTensor("INT32", np.array(3, np.int32))}
    assert (await model.infer(InferRequest("m", both))).outputs["y"].array.tolist() == [3, 6]
    await model.close()


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"input": [{"name": "z"}]}, "unexpected inference input 'z', allowed inputs are: x, y"),
        ({"input": [{"name": "x", "data_type": "TYPE_INT32"}]}, "is FP32, and its config says TYPE_INT32"),
        ({"input": [{"name": "x", "dims": [4, 4]}]}, "its config says [4, 4]"),
        ({"output": [{"name": "z"}]}, "unexpected inference output 'z', allowed outputs are: diff, sum"),
        ({"max_batch_size": -1}, "is -1, less than 0"),
        ({"sequence_batching": {"iterative_sequence": True}}, "iterative_sequence"),
        ({"input": [{"name": "x", "is_shape_tensor": True}]}, "model 'm' has 'input[0].is_shape_tensor' in its config"),
        ({"input": [{"name": "x", "allow_ragged_batch": True}]}, "'input[0].allow_ragged_batch'"),
        ({"output": [{"name": "sum", "is_non_linear_format_io": True}]}, "'output[0].is_non_linear_format_io'"),
        ({"batch_input": [{"target_name": ["x"]}]}, "'batch_input'"),
        ({"batch_output": [{"target_name": ["sum"]}]}, "'batch_output'"),
        ({"instance_group": [{"passive": True}]}, "'instance_group[0].passive'"),
        ({"model_operations": {"op_library_filename": ["a.so"]}}, "'model_operations.op_library_filename'"),
        ({"model_repository_agents": {"agents": [{"name": "checksum"}]}}, "'model_repository_agents'"),
        ({"name": "other"}, "directory name must equal model name"),
        ({"no_such_field": 1}, "no_such_field"),
    ],
)
def test_configurations_that_do_not_fit(config: dict[str, Any], told: str) -> None:
    with pytest.raises(ax.errors.InvalidArgumentError) as raised:
        model_of(sums(), **config)
    assert told in raised.value.message


async def test_fields_for_other_hardware_have_no_effect() -> None:
    fields: dict[str, Any] = {
        "backend": "python",
        "runtime": "r",
        "parameters": {"a": {"string_value": "1"}},
        "optimization": {"eager_batching": True, "cuda": {"graphs": True}, "priority": "PRIORITY_MAX"},
        "instance_group": [
            {"kind": "KIND_GPU", "gpus": [0], "rate_limiter": {"resources": [{"name": "r", "count": 4}]}}
        ],
        "cc_model_filenames": {"8.0": "model.pb"},
        "metric_tags": {"a": "b"},
        "model_metrics": {"metric_control": [{"metric_identifier": {"family": "f"}}]},
        "input": [{"name": name, "format": "FORMAT_NHWC", "dims": [-1, 3]} for name in "xy"],
    }
    model = model_of(sums(), **fields)
    found = await model.infer(InferRequest("m", {"x": rows(5), "y": rows(2)}))
    assert found.outputs["sum"].array.tolist() == [[7.0] * 3]
    await model.close()


async def test_a_config_names_tensors_of_the_graph() -> None:
    output = [{"name": "sum:0", "data_type": "TYPE_FP32", "dims": [-1, 3]}]
    model: Model = model_of(sums(), output=output)
    assert list((await model.infer(InferRequest("m", {"x": rows(1), "y": rows(1)}))).outputs) == ["sum:0"]
    await model.close()


async def test_a_model_that_is_held_is_not_closed() -> None:
    model = model_of(sums())
    with model.held():
        closing = asyncio.create_task(model.close())
        await asyncio.sleep(0)
        found = await model.infer(InferRequest("m", {"x": rows(5), "y": rows(2)}))
    await closing
    assert found.outputs["sum"].array.tolist() == [[7.0] * 3]


@pytest.mark.parametrize("scheduling", [{}, {"dynamic_batching": {}}])
async def test_no_rows_give_no_rows(scheduling: dict[str, Any]) -> None:
    model = model_of(sums(), max_batch_size=4, **scheduling)
    found = await model.infer(InferRequest("m", {"x": rows(5, 0), "y": rows(2, 0)}))
    assert found.outputs["sum"].array.shape == (0, 3)
    await model.close()
