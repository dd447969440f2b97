"""What README.md and docs/ show can be pasted: every block of Python runs, and the commands exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.pnnx_model import put_pnnx_model
from tests.programs import run_program, start_server

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

NEEDS = re.compile(r"# needs (.*)$", re.MULTILINE)  # libraries that a block shows the use of


@pytest.fixture(scope="module", autouse=True)
def server() -> None:
    start_server()


class Block(NamedTuple):
    """A block of Python of a page, and the line it begins at."""

    page: Path
    line: int
    source: str


def blocks() -> list[Block]:
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        found += [Block(page, text.count("\n", 0, match.start()) + 2, match[1]) for match in BLOCK.finditer(text)]
    return found


@pytest.mark.parametrize("block", blocks(), ids=lambda block: f"{block.page.relative_to(ROOT)}:{block.line}")
def test_every_block_of_python_runs(block: Block, tmp_path: Path) -> None:
    for module in re.findall(r"\w+", needed[1]) if (needed := NEEDS.match(block.source)) else ():
        pytest.importorskip(module)
    program = tmp_path / "block.py"
    program.write_text("\n" * (block.line - 1) + block.source, encoding="utf-8")
    if "model.pnnx.param" in block.source:
        put_pnnx_model(tmp_path)
    ended = run_program(program, folder=tmp_path)
    assert ended.code == 0, ended.stderr
    assert_says(ended.stdout, block.source)


def assert_says(stdout: str, source: str) -> None:
    """Comments ``# prints: ...`` are what the program prints, line by line."""
    promised = re.findall(r"# prints: (.*)$", source, re.MULTILINE)
    if promised:
        assert [line.strip() for line in stdout.splitlines()] == [line.strip() for line in promised]


def test_readme_shows_both_commands_and_a_short_example() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "make demo" in readme
    assert "make test" in readme
    example = BLOCK.search(readme)
    assert example is not None
    assert len(example[1].splitlines()) <= 24


@pytest.mark.parametrize("target", ["demo", "test", "docs", "check-deep", "bench", "clean"])
def test_makefile_has_the_targets_that_are_spoken_of(target: str) -> None:
    assert re.search(rf"^{target}:.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
