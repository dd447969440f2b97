"""What type checkers make of right programs, of wrong lines, and of all that is public.

A program in ``good/`` must satisfy mypy and pyright in their strict modes, and runs; so must the one that README.md
shows.  In ``bad/``, each line that is marked ``# error``, and no other, must be an error of both.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Container, Iterable
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.running import STRICT

ROOT = Path(__file__).parents[2]
GOOD = sorted((ROOT / "tests" / "typing" / "good").glob("*.py"))
BAD = sorted((ROOT / "tests" / "typing" / "bad").glob("*.py"))
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
LEAST_KNOWN = 0.95  # of the types of public symbols

Line: TypeAlias = tuple[str, int]

needs_pyright = pytest.mark.skipif(
    importlib.util.find_spec("basedpyright") is None, reason="basedpyright is in the dependency group 'lint'"
)


def readme_program(folder: Path) -> Path:
    """The first block of Python of README.md, in the lines that it has there."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    match = re.search(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert match is not None
    program = folder / "readme.py"
    program.write_text("\n" * (text.count("\n", 0, match.start()) + 1) + match[1], encoding="utf-8")
    return program


def marked(files: Iterable[Path]) -> set[Line]:
    """The lines that are to be errors."""
    return {
        (file.name, number)
        for file in files
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if line.endswith("# error")
    }


def output_of(command: list[str], good: Container[int] = (0,)) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode in good, done.stdout + done.stderr
    return done.stdout


def checked(command: list[str]) -> str:
    """What a checker says, which may have found errors."""
    return output_of(command, (0, 1))


def assert_errors(found: dict[Line, str], expected: set[Line]) -> None:
    unexpected = [
        f"{file}:{line}: {message}" for (file, line), message in found.items() if (file, line) not in expected
    ]
    assert unexpected == []
    assert expected - found.keys() == set()


@pytest.mark.first
def test_mypy(tmp_path: Path) -> None:
    files = [*GOOD, *BAD, *EXAMPLES, readme_program(tmp_path)]
    output = checked(["-m", "mypy", "--output", "json", *map(str, files)])
    errors = [error for error in map(json.loads, output.splitlines()) if error["severity"] == "error"]
    found = {(Path(error["file"]).name, error["line"]): error["message"] for error in errors}
    assert_errors(found, marked(BAD))


@needs_pyright
@pytest.mark.first
def test_pyright(tmp_path: Path) -> None:
    files = [*GOOD, *BAD, readme_program(tmp_path)]
    config = tmp_path / "pyrightconfig.json"
    settings = {
        "typeCheckingMode": "strict",  # pyright's own, without what basedpyright adds
        "include": [str(file) for file in files],
        "extraPaths": [str(ROOT)],
    }
    config.write_text(json.dumps(settings), encoding="utf-8")
    report = json.loads(
        checked(["-m", "basedpyright", "--pythonpath", sys.executable, "--outputjson", "-p", str(config)])
    )
    assert report["summary"]["filesAnalyzed"] == len(files)
    errors = [error for error in report["generalDiagnostics"] if error["severity"] == "error"]
    found = {(Path(error["file"]).name, error["range"]["start"]["line"] + 1): error["message"] for error in errors}
    assert_errors(found, marked(BAD))


@needs_pyright
@pytest.mark.deep
def test_the_types_of_public_symbols_are_known() -> None:
    options = ["--ignoreexternal", "--pythonpath", sys.executable, "--outputjson"]
    report = json.loads(checked(["-m", "basedpyright", "--verifytypes", "asyncexec", *options]))["typeCompleteness"]
    assert Path(report["packageRootDirectory"]) == ROOT / "asyncexec"
    unknown = [symbol["name"] for symbol in report["symbols"] if symbol["isExported"] and not symbol["isTypeKnown"]]
    assert report["completenessScore"] >= LEAST_KNOWN, unknown
    assert [name for name in unknown if name.count(".") == 1] == [], "names that users import"


@pytest.mark.parametrize("program", GOOD, ids=lambda program: program.stem)
def test_good_programs_run(program: Path) -> None:
    """In processes of their own, for the ops that they register stay."""
    assert output_of([*STRICT, str(program)]) == ""
