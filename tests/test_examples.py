"""Every program in examples/ runs as it stands, prints what it says it does, and leaves no warning."""

from __future__ import annotations

import asyncio
import os
import re
import runpy
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from starlette.requests import Request

import asyncexec as ax
from tests.programs import run_program, start_server
from tests.running import STRICT

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


# They start processes of their own, or end by signals: they run as a shell would run them.
BY_THEMSELVES = {
    "cluster_embeddings.py",
    "cluster_pipeline.py",
    "cluster_training.py",
    "order_pipeline.py",
    "queue_worker.py",
}


@pytest.fixture(scope="module", autouse=True)
def server() -> None:
    start_server()


def started(example: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, *STRICT, str(ROOT / "examples" / example), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def output_of(example: str, *arguments: str) -> str:
    if example in BY_THEMSELVES:
        with started(example, *arguments) as program:
            output, errors = program.communicate(timeout=60)
        code = program.returncode
    else:
        with TemporaryDirectory() as folder:
            code, output, errors = run_program(ROOT / "examples" / example, *arguments, folder=Path(folder))
    assert code == 0, errors
    assert errors == ""
    return output


def test_every_example_has_its_line_and_its_test() -> None:
    readme = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    tests = Path(__file__).read_text(encoding="utf-8")
    for example in EXAMPLES:
        assert f"({example.name})" in readme
        assert f'output_of("{example.name}"' in tests
        assert 40 <= len(example.read_text(encoding="utf-8").splitlines()) <= 120


def test_pnnx_order() -> None:
    output = output_of("pnnx_order.py")
    assert re.search(r"^pnnx.Input +input +then wide, narrow$", output, re.MULTILINE)
    assert "output: [[2.8" in output
    assert "order: wide narrow act sum pool output" in output


def test_builder_tour() -> None:
    output = output_of("builder_tour.py")
    assert "<ax.op fetch_weights(model) -> float32>" in output
    assert "shape known before anything runs: [?,2]" in output
    assert "checked waits for: ['check']" in output
    refusals = re.findall(r"^refused: .*", output, re.MULTILINE)
    assert len(refusals) == 2
    source = (ROOT / "examples" / "builder_tour.py").read_text(encoding="utf-8").splitlines()
    wrong = [n for n, line in enumerate(source, 1) if "ax.matmul(x, ax.constant" in line or "x + ax.constant" in line]
    assert [int(line) for line in re.findall(r"builder_tour\.py:(\d+)", output)] == wrong
    assert "'total': np.float32(10.0)" in output
    assert "with y fed: 7.5" in output
    assert "node: check" in output
    assert "the longest layer/fetch_weights" in output


def test_frozen_model() -> None:
    output = output_of("frozen_model.py")
    assert re.search(r"^(\w+): \1 \(\d+\.\d%\), else \w+ \(\d+\.\d%\)$", output, re.MULTILINE)
    assert "446 of 450 right" in output


def test_starlette_app() -> None:
    *answers, refusal = output_of("starlette_app.py").splitlines()
    assert len(answers) == 5
    assert all(re.fullmatch(r"200 \{'digit': \d, 'confidence': [01]\.\d+\}", answer) for answer in answers)
    assert refusal == "422 {'error': 'this is no image', 'node': 'decode'}"


@pytest.mark.allow_blocking
async def test_starlette_app_cancels_the_step_of_a_client_that_has_gone() -> None:
    log: list[str] = []
    begun = asyncio.Event()

    async def classify(file: bytes) -> tuple[int, float]:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            log.append(f"{file.decode()} was cancelled")
        return 0, 0.0

    async def receive() -> dict[str, Any]:
        if not log:
            log.append("body was received")
            return {"type": "http.request", "body": b"an image", "more_body": False}
        await begun.wait()
        return {"type": "http.disconnect"}

    with ax.Graph() as graph:
        digit, confidence = ax.op(classify)(ax.placeholder(ax.string, [], name="file"))
        ax.identity(digit, name="digit")
        ax.identity(confidence, name="confidence")
    example = runpy.run_path(str(ROOT / "examples" / "starlette_app.py"))
    async with ax.Session(graph) as example["app"].state.session:
        scope = {"type": "http", "method": "POST", "headers": [], "app": example["app"]}
        response = await example["classify"](Request(scope, receive))
        assert response.status_code == 499
        assert log == ["body was received", "an image was cancelled"]


def test_enrich_records() -> None:
    output = output_of("enrich_records.py")
    assert "order 2: 225.00 EUR" in output
    assert "order 3: 59.40 EUR" in output  # after an error
    assert "order 4: 96.00 EUR" in output  # after a call without an answer
    assert re.search(r"^order 5: exchange_rate failed: .*404", output, re.MULTILINE)
    assert re.search(r"^order 7: read_order failed: there is no order 7$", output, re.MULTILINE)
    assert "5 of 6 orders written, 543.40 EUR in all" in output
    assert "calls: EUR 1, GBP 2, JPY 2, USD 2, XXX 3" in output


def test_crawler() -> None:
    output = output_of("crawler.py")
    assert re.search(r"^120 pages found by 120 calls, up to ([2-9]|1[0-6]) at a time$", output, re.MULTILINE)
    assert re.search(r"^ranks that sum to 1\.000000 after \d\d rounds$", output, re.MULTILINE)
    assert "best: /page/6, /page/4, /page/5" in output


def test_client_gone() -> None:
    """By a server and a client with a connection between them."""
    assert output_of("client_gone.py").splitlines() == [
        "  the seat of 'why' is free again",
        "who waits gets {'answer': 'The answer is yhw.'}",
        "under way: ['everything']",
        "  the seat of 'everything' is free again",  # by the finally of the kernel that was cancelled
        "after the client has gone: []",
        "  the seat of 'how' is free again",
        "the service goes on: {'answer': 'The answer is woh.'}",
    ]


def test_rate_limited_api() -> None:
    output = output_of("rate_limited_api.py")
    assert "Accra: 21.0 degrees, by 2 calls" in output
    assert "Dhaka: 21.0 degrees, by 3 calls" in output  # of which one failed
    assert "Essen: position failed: BusyError: 503" in output
    assert (
        len(re.findall(r"^  attempt [12] of 3: BusyError: 503 .*; tried again after 0\.0\d+ s$", output, re.MULTILINE))
        == 2
    )
    assert re.search(r"^  attempt 3 of 3: BusyError: 503 for /position/Essen$", output, re.MULTILINE)
    assert re.search(r"^Atlantis: position failed: .*404", output, re.MULTILINE)  # tried once
    assert "23 calls, 3 at a time, never refused" in output


COUNTS = re.compile(r"^taken (\d+), stored (\d+), failed (\d), left (\d+)$", re.MULTILINE)
no_signals = pytest.mark.skipif(sys.platform == "win32", reason="an event loop takes no signals there")


@no_signals
def test_queue_worker() -> None:
    output = output_of("queue_worker.py")
    under_way = re.search(r"^SIGTERM: jobs \[(.*)\] are under way$", output, re.MULTILINE)
    counts = COUNTS.search(output)
    assert under_way is not None
    assert counts is not None
    taken, stored, failed, left = map(int, counts.groups())
    assert "5" in under_way[1].split(", ")
    assert (stored, failed) == (taken - 1, 1)  # all that was begun, but the one that fails
    assert (taken + left, left > 0) == (12, True)
    assert "failed: load: ValueError: job 2 has no data" in output


@no_signals
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_queue_worker_that_gets_its_signal_from_outside(number: signal.Signals) -> None:
    with started("queue_worker.py", "100000") as worker:
        assert worker.stdout is not None
        assert "takes jobs" in worker.stdout.readline()
        worker.send_signal(number)
        output, errors = worker.communicate(timeout=60)
    assert (worker.returncode, errors) == (0, "")
    counts = COUNTS.search(output)
    assert counts is not None
    taken, stored, failed, left = map(int, counts.groups())
    assert output.startswith(f"{number.name}: jobs [")
    assert stored + failed == taken < left
    assert taken + left == 100_000


def test_scheduling_policy() -> None:
    """Two at a time: the cream is begun beside the dough, and what is left when something is done."""
    assert output_of("scheduling_policy.py").splitlines() == [
        "DEFAULT: whip the cream, wash the berries, make the dough, bake, let it cool, decorate",
        "LONGEST_WAY_FIRST: make the dough, whip the cream, bake, wash the berries, let it cool, decorate",
    ]


def test_simple_executor() -> None:
    *lines, refusal = output_of("simple_executor.py").splitlines()
    assert [line.strip() for line in lines] == [
        "by the general executor",
        "distance 5.0, dead: False, far: False",
        "distance 10.0, farther than one less: True",
        "one by one",
        "step 1: _Recv Square _Recv Square AddV2 Sqrt _Send _Recv Greater _Send",
        "distance 5.0, dead: False, far: False",
        "one by one, in a session",
        "step 1: _Recv Const Greater Identity Switch Sqrt Switch Neg Merge _Send",
        "y = 3.0",
    ]
    assert "'TWO_BY_TWO'" in refusal
    assert refusal.endswith("COMPILED, DEFAULT, ONE_BY_ONE, TAGGED_TOKEN")


def test_sensor_stream() -> None:
    output = output_of("sensor_stream.py")
    anomalies = re.findall(r"^message (\d+): sensor [ab] at \d+\.\d, score \d+\.\d(, ALARM)?$", output, re.MULTILINE)
    assert anomalies == [("150", ""), ("280", ""), ("281", ", ALARM")]  # two of them within 50 messages
    assert re.search(r"^item 200: JSONDecodeError: .*, at read_message$", output, re.MULTILINE)
    assert "400 messages, 3 anomalies, 1 unreadable" in output


def test_fastapi_score() -> None:
    """With a deadline of its own, so that a busy machine is not late; the customer that is slow always is."""
    regular, new, *failures = output_of("fastapi_score.py", "3").splitlines()
    assert re.fullmatch(r"regular 200 \{'score': 0\.8\d+, 'reputation': 7\.0\}", regular)
    assert re.fullmatch(r"new 200 \{'score': 0\.1\d+, 'reputation': 0\.5\}", new)  # the fallback
    assert failures == [
        """unknown 404 {'detail': "no customer 'unknown'"}""",
        "broken 502 {'detail': 'payments failed'}",
        "slow 504 {'detail': 'too late: orders'}",
    ]


def test_agent_loop() -> None:
    assert output_of("agent_loop.py").splitlines() == [
        "Where is it warm? 3 of 5 rounds; it is done",
        "    3 pages about warm places",
        "    Accra: 30 degrees",
        "    failed: LookupError: there is no Atlantis",
        "    Essen: 30 degrees",
        "Where is it cold? 1 of 5 rounds; ConnectionError: the model is gone",
        "    3 pages about cold places",
        "What is the question? 5 of 5 rounds; no rounds are left",
        *(f"    3 pages about thought {number}" for number in range(5)),
    ]


def test_approval_agent() -> None:
    """The tea is ordered once, though the run goes on in another session."""
    assert output_of("approval_agent.py").splitlines() == [
        "  ordering tea, key of 61 characters",
        "202 ['samovar']",
        "the service starts anew",
        "  ordering samovar, key of 61 characters",
        "  ordering kettle, key of 61 characters",
        "200",
        "  task: buy tea, samovar, kettle",
        "  model: next is tea",
        "  shop: tea is ordered",
        "  model: next is samovar",
        "  shop: samovar is ordered",
        "  model: next is kettle",
        "  shop: kettle is ordered",
        "  model: next is nothing",
        "409",
        "404",
    ]


def test_sensor_restart() -> None:
    assert output_of("sensor_restart.py").splitlines() == [
        "4 windows, then closed at (30, 685.0)",  # the last one is not full
        "crashed: True",
        "100 readings, 2295.0 in all; expected 100, 2295.0",
    ]


def test_order_pipeline() -> None:
    amounts = [number / 2 for number in range(300) if not 150 <= number < 160]  # the window of the bad line fails
    assert output_of("order_pipeline.py").splitlines() == [
        *["killed"] * 4,
        "ended with 0",
        f"orders: 290, sum {sum(amounts)}",
        f"totals of 4 shops, sum {sum(amounts)}",
        "windows in dead letters: 1",
    ]


def test_click_sessions() -> None:
    assert output_of("click_sessions.py").splitlines() == [
        "crashed: True",
        "12 sessions, each once: True",
        "ann: 4 sessions, 8 clicks; bob: 4 sessions, 8 clicks; eve: 4 sessions, 8 clicks",
        "1 click was late",
    ]


def test_saved_model_service() -> None:
    answers, refusal = output_of("saved_model_service.py").splitlines()
    found = re.fullmatch(r"40 requests, 40 rows in (\d+) batches; digits: \{1\}", answers)
    assert found is not None
    assert 2 <= int(found[1]) < 40
    assert refusal.startswith("400 cannot feed a value of shape [1, 1, 1, 1]")


def test_remote_model() -> None:
    """By a server in the same process, on a port of its own."""
    assert output_of("remote_model.py").splitlines() == [
        "served: [('risk', 'READY')]",
        "inputs: amounts float32[?], customer string[]",
        "one order: [5.0, 10.0] 15.0",
        "a map: [3.0, 6.0, 9.0]",
        "a stream: 0.5",
        "a stream: InvalidTypeError",
        "a stream: 2.5",
        "late: the run took more than its timeout of 0.2 s",
        "in a graph: d.example [5.0, True]",
        "in a graph: e.test [1.0, False]",
    ]


def test_cluster_embeddings() -> None:
    texts, speed, nearest = output_of("cluster_embeddings.py", "200", "2").splitlines()
    assert texts == "200 texts over 2 workers"
    assert re.fullmatch(r"[\d,]+ texts a second", speed)
    assert nearest.startswith("nearest to old river from Accra, no. 0: ")
    assert nearest.count("river") == 3


def test_cluster_pipeline() -> None:
    assert output_of("cluster_pipeline.py").splitlines() == [
        "24 batches over 3 processes, as in one: True",
        "/job:local/replica:0/task:0/device:CPU:0 layer_0 layer_1",
        "/job:local/replica:0/task:1/device:CPU:0 layer_2 layer_3",
    ]


def test_cluster_training() -> None:
    first, *_, last, equal, updates = output_of("cluster_training.py").splitlines()
    assert float(first.split()[-1]) > 1
    assert float(last.split()[-1]) < 0.001
    assert equal == "the replicas are equal: True"
    assert updates == "80 updates: [2.0, -3.0, 1.0]"
