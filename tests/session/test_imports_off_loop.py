"""First runs import nothing on the thread of the event loop: it would stand still for tens of milliseconds."""

from __future__ import annotations

import subprocess
import sys


def test_libraries_of_kernels_compilers_and_passes() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.session.imports_program"], capture_output=True, text=True, check=False
    )
    on_loop, are_imported, is_validator_built = run.stdout.splitlines() or ("", "", run.stderr)
    assert (on_loop, are_imported) == ("[]", "[True, True]"), run.stderr
    assert is_validator_built == "False"  # of the statistics of passes, which takes as long as an import
