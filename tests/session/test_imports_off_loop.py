"""First runs import nothing on the thread of the event loop: it would stand still for tens of milliseconds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import asyncexec as ax


@ax.function
def inverted(x: ax.Tensor) -> ax.Tensor:
    return ax.create_op("Invert", [x])


def test_libraries_of_kernels_compilers_and_passes_and_ops_of_functions(tmp_path: Path) -> None:
    with ax.Graph() as graph:
        ax.identity(inverted(ax.placeholder(ax.int32, [], name="x")), name="y")
    ax.save_graph_def(graph.as_graph_def(), tmp_path / "calling.json")
    command = [sys.executable, "-m", "tests.session.imports_program", str(tmp_path / "calling.json")]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    on_loop, are_imported, is_validator_built = run.stdout.splitlines() or ("", "", run.stderr)
    assert (on_loop, are_imported) == ("[]", "[True, True, True]"), run.stderr
    assert is_validator_built == "False"  # of the statistics of passes, which takes as long as an import
