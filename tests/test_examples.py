"""Every program in examples/ runs as it stands, prints what it says it does, and leaves no warning."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def output_of(example: str) -> str:
    command = [sys.executable, "-W", "error", str(ROOT / "examples" / example)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_every_example_has_its_line_and_its_test() -> None:
    readme = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    tests = Path(__file__).read_text(encoding="utf-8")
    for example in EXAMPLES:
        assert f"({example.name})" in readme
        assert f'output_of("{example.name}")' in tests
        assert 40 <= len(example.read_text(encoding="utf-8").splitlines()) <= 120


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
    assert re.search(r"^120 pages found by 120 calls, up to 1[0-6] at a time$", output, re.MULTILINE)
    assert re.search(r"^ranks that sum to 1\.000000 after \d\d rounds$", output, re.MULTILINE)
    assert "best: /page/6, /page/4, /page/5" in output
