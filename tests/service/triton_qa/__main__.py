"""``python -m tests.service.triton_qa --server PATH --client PATH``: Triton's own tests against the service.

PATHs are checkouts of triton-inference-server/server and triton-inference-server/client.  For each module of tests it
makes a folder of models, starts ``asyncexec serve`` on the ports that the tests know, 8000 and 8001, runs the module in
a copy of its folder, unchanged, and prints a table in Markdown of each test with what became of it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.service.triton_qa.repository import ModelFolder
from tests.service.triton_qa.suites import (
    EXAMPLE_OPTIONS,
    EXAMPLE_REASONS,
    EXPLICIT,
    NO_EXAMPLE,
    NOT_RUN,
    SHARED,
    SUITES,
    Suite,
    examples,
)

ROOT = Path(__file__).parents[3]
RUNNER = Path(__file__).with_name("runner.py")
START_S, MODULE_S, EXAMPLE_S = 120, 3600, 60
MOST_TOLD = 140
Row = tuple[str, str, str]


@contextmanager
def service(models: Sequence[ModelFolder], options: Sequence[str], folder: Path) -> Iterator[int]:
    """The process of a service of *models* on Triton's ports."""
    repository = folder / "models"
    for model in models:
        model.write(repository)
    given = [option for option in options if option != "--load-all"]
    if "--load-all" in options:
        given += [word for model in models for word in ("--load-model", model.name)]
    command = [sys.executable, "-m", "asyncexec.cli.main", "serve", str(repository), "--allow-python", *given]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with (folder / "service.log").open("w") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
    try:
        _wait_until_ready(process)
        yield process.pid
    finally:
        process.terminate()
        process.wait(60)


def _wait_until_ready(process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end and process.poll() is None:
        try:
            if httpx.get("http://localhost:8000/v2/health/ready").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise RuntimeError("the service does not get ready")


def tests_of(suite: Suite, checkout: Path) -> list[Row]:
    """What becomes of each test of *suite*."""
    if not suite.is_apart:
        return _rows(suite, _results(suite, checkout, list(suite.left_out)))
    found = []
    for name, outcome, told in _results(suite, checkout, [""]):  # of none, but their names
        is_left_out = any(part in name for part in suite.left_out)
        found += [(name, outcome, told)] if is_left_out else _results(suite, checkout, [f"={name}"])
    return _rows(suite, found)


def _results(suite: Suite, checkout: Path, parts: Sequence[str]) -> list[Row]:
    """The names of tests, what became of them, and what they told; *parts* are those of ``runner.py``."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for each in ("common", suite.folder):
            shutil.copytree(checkout / "qa" / each, folder / "qa" / each)
        results = folder / "results"
        results.touch()
        with service(suite.models, suite.options, folder) as pid:
            environment = os.environ | suite.environment | {"SERVER_PID": str(pid), "TRITONSERVER_IPADDR": "localhost"}
            environment.pop("PYTHONPATH", None)
            command = [sys.executable, str(RUNNER), suite.module, str(results), *parts]
            try:
                done = subprocess.run(
                    command,
                    cwd=folder / "qa" / suite.folder,
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=MODULE_S,
                )
                failure = done.stderr.strip().splitlines()[-1] if done.returncode else ""
            except subprocess.TimeoutExpired:
                failure = f"it took more than {MODULE_S} s"
        found: list[Row] = [json.loads(line) for line in results.read_text().splitlines()]
        return [*found, (suite.module, "fail", failure)] if failure else found


def _rows(suite: Suite, results: Sequence[Row]) -> list[Row]:
    found = [_row(suite, *result) for result in results]
    return [(name, outcome, told) for name, outcome, told in found if told or outcome != "left out"]


def _row(suite: Suite, test: str, outcome: str, told: str) -> Row:
    kinds = "".join(f", {value}" for name, value in suite.environment.items() if name == "CLIENT_TYPE")
    name = f"{suite.name}{kinds}: {test.removeprefix(f'{suite.module}.')}"
    known = suite.left_out if outcome == "left out" else suite.reasons
    reason = next((reason for part, reason in known.items() if part in test), None)
    if outcome == "fail" and reason is not None:
        outcome = "differs"
    return name, outcome, _one_line(reason or told)


def _one_line(text: str) -> str:
    text = " ".join(text.split()).replace("|", "\\|")
    return text if len(text) <= MOST_TOLD else f"{text[:MOST_TOLD]}..."


def examples_of(checkout: Path) -> list[Row]:
    """What becomes of each example client; those that load and unload models have a service of their own."""
    paths = sorted((checkout / "src/python/examples").glob("*.py"))
    alone = [path for path in paths if path.stem.endswith("_model_control")]
    found: list[Row] = []
    for group in ([path for path in paths if path not in alone], *([path] for path in alone)):
        with tempfile.TemporaryDirectory() as name, service(examples(), (*EXPLICIT, *SHARED), Path(name)):
            found += [_example(path, Path(name)) for path in group]
    return sorted(found)


def _example(path: Path, folder: Path) -> Row:
    name = f"client/{path.name}"
    if path.name in NO_EXAMPLE:
        return name, "left out", NO_EXAMPLE[path.name]
    command = [sys.executable, str(path), *EXAMPLE_OPTIONS.get(path.name, ())]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=EXAMPLE_S)
    except subprocess.TimeoutExpired:
        return name, "fail", f"it took more than {EXAMPLE_S} s"
    if done.returncode == 0:
        return name, "pass", ""
    if path.name in EXAMPLE_REASONS:
        return name, "differs", EXAMPLE_REASONS[path.name]
    lines = [*done.stdout.splitlines(), *done.stderr.splitlines(), ""]
    return name, "fail", _one_line(next((line for line in reversed(lines) if line.strip()), ""))


def table(rows: Sequence[Row], commits: dict[str, str]) -> str:
    """The page of *rows*."""
    counts = {outcome: sum(row[1] == outcome for row in rows) for outcome in ("pass", "differs", "fail", "skipped")}
    lines = [
        "# Triton's own tests",
        "",
        "The public tests of Triton's server, as far as they ask it over its ports, and the examples of its client,",
        "run unchanged against `asyncexec serve`, on models that are graphs.",
        "`python -m tests.service.triton_qa --server PATH --client PATH --write docs/triton-tests.md` runs them",
        "and writes this page.",
        "",
        *(f"- `{name}` at `{commit[:12]}`" for name, commit in commits.items()),
        "",
        f"{counts['pass']} pass, {counts['differs']} fail for a reason that is known, and {counts['fail']} for others.",
        "Those that cannot be run say why; modules that are not run stand at the end.",
        "",
        "| test | | reason |",
        "|---|---|---|",
        *(f"| {name} | {outcome} | {reason} |" for name, outcome, reason in rows),
        *(f"| {name} | not run | {reason} |" for name, reason in NOT_RUN.items()),
    ]
    return "\n".join(lines) + "\n"


def commit_of(checkout: Path) -> str:
    command = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.service.triton_qa")
    parser.add_argument("--server", type=Path, required=True, help="a checkout of triton-inference-server/server")
    parser.add_argument("--client", type=Path, help="a checkout of triton-inference-server/client")
    parser.add_argument("--write", type=Path, help="the page to write")
    parser.add_argument("names", nargs="*", help="parts of the names of modules; without any, all are run")
    options = parser.parse_args()
    rows: list[Row] = []
    commits = {"triton-inference-server/server": commit_of(options.server)}
    for suite in SUITES:
        if not options.names or any(name in suite.name for name in options.names):
            print(f"running {suite.name}", file=sys.stderr, flush=True)
            try:
                rows += tests_of(suite, options.server)
            except RuntimeError as error:
                rows.append((suite.name, "fail", str(error)))
    if options.client is not None:
        commits["triton-inference-server/client"] = commit_of(options.client)
        print("running the examples", file=sys.stderr, flush=True)
        rows += examples_of(options.client)
    page = table(rows, commits)
    print(page)
    if options.write is not None:
        options.write.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
