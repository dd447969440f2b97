"""The side of TensorFlow: a process that reads ``op number`` lines and answers each with a line of JSON.

Some inputs abort TensorFlow's whole process, others keep it busy: ``Oracle`` starts another one then.
"""

from __future__ import annotations

import base64
import json
import os
import select
import subprocess
import sys
from importlib import import_module
from typing import Any, Final

import numpy as np

from asyncexec.framework.types import as_dtype
from tests.oracle.differences.generator import draw

PATIENCE_S: Final = 30.0


class Oracle:
    """TensorFlow in another process (``process``); ``ask`` and then ``answer``, in turn."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self._is_asked = False

    def start(self) -> None:
        """Have a process that waits for a question: another one, if it has ended or a question was given up."""
        if self._is_asked or (self.process is not None and self.process.poll() is not None):
            self.close()
        self.process = self.process or subprocess.Popen(
            [sys.executable, "-m", __spec__.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"},
        )

    def ask(self, op: str, number: int) -> None:
        """Have the case run."""
        self.start()
        assert self.process is not None
        assert self.process.stdin is not None
        self._is_asked = True
        self.process.stdin.write(f"{op} {number}\n".encode())
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any] | None:
        """What TensorFlow gave: ``outputs``, or the code of its ``error``; None when its process has ended."""
        assert self.process is not None
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], PATIENCE_S)
        line = self.process.stdout.readline() if readable else b""
        if not line:
            self.close()
            return None
        self._is_asked = False
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        """End the process."""
        process, self.process, self._is_asked = self.process, None, False
        if process is not None:
            process.kill()
            process.communicate()


def decode(output: dict[str, Any]) -> Any:
    """The array that ``encode`` of make_op_golden.py has written."""
    if output["dtype"] == "string":
        array = np.empty(len(output["data"]), object)
        array[:] = [base64.b64decode(item) for item in output["data"]]
        return array.reshape(output["shape"])
    dtype = as_dtype(output["dtype"]).as_numpy_dtype
    return np.frombuffer(base64.b64decode(output["data"]), dtype).reshape(output["shape"])


def main() -> None:
    """Answer until no more is asked."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    golden: Any = import_module("tests.golden.make_op_golden")
    for line in sys.stdin:
        op, number = line.split()
        try:
            found = golden.answer(draw(op, int(number)))
        except Exception as error:  # such as a TypeError of what feeds it
            found = {"error": 3, "message": str(error)[:200]}
        out.write(json.dumps(found) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
