"""The identity model on KServe's Python server, for the rows of the service; run by a Python that has it.

``KSERVE_PYTHON=/path/to/python python -m benchmarks 'service_load*'`` lets it take part.  It imports nothing of the
project.  It prints its port and ends when its input does.
"""

import logging
import os
import socket
import sys
import threading
from typing import Any

import kserve


class Identity(kserve.Model):
    """Input x, output y: the same floats."""

    def __init__(self) -> None:
        super().__init__("identity")
        self.ready = True

    async def predict(self, payload: Any, headers: Any = None, response_headers: Any = None) -> Any:
        given = payload.inputs[0]
        values = given.as_numpy()
        output = kserve.InferOutput("y", list(values.shape), "FP32")
        output.set_data_from_numpy(values, binary_data=False)
        return kserve.InferResponse(payload.id or "", "identity", [output])


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    logging.disable(logging.WARNING)
    threading.Thread(target=_end_with_input, daemon=True).start()
    print(port, flush=True)
    kserve.ModelServer(http_port=port, enable_grpc=False, workers=1, access_log_format="off").start([Identity()])
