"""The demo's image server: a process of its own, so that what the demo measures of its event loop is its loop alone.

The child listens on an ephemeral port of 127.0.0.1, prints that port, serves ``/digits/INDEX.png`` with a few
milliseconds
of latency, and ends when its standard input is closed, hence also when the parent dies.
"""

from __future__ import annotations

import asyncio
import io
import socket
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from asyncexec.framework.errors import UnavailableError
from asyncexec.framework.extras import require

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from asyncexec.framework.arrays import Array

DATA: Final = Path(__file__).parent / "demo_data"
# The images hold 0, 1/16, ..., 1; a step of 15 in 8 bits keeps that exactly: pixel / 240 is the value again.
WHITE: Final = 240
START_TIMEOUT_S: Final = 30.0
STOP_TIMEOUT_S: Final = 5.0


def latency_s(index: int) -> float:
    """How long the server waits before it answers with image *index*: between 2 and 10 ms, always the same."""
    return 0.002 + index * 37 % 81 * 1e-4


@asynccontextmanager
async def image_server() -> AsyncIterator[asyncio.Future[str]]:
    """Starts the server; yields the future of its address and ends the server after the block."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "asyncexec.cli.demo_server"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for the parent alone, which then ends the child
    )
    address = asyncio.ensure_future(_address(process))
    try:
        yield address
    finally:
        address.cancel()
        await _stop(process)


async def _address(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(START_TIMEOUT_S):
        line = await process.stdout.readline()
    if not line:
        raise UnavailableError("the demo's image server did not start")
    return f"http://127.0.0.1:{int(line)}"


async def _stop(process: asyncio.subprocess.Process) -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        async with asyncio.timeout(STOP_TIMEOUT_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def png(image: Array) -> bytes:
    """*image*, of values from 0 to 1, as a PNG file in shades of grey."""
    import numpy as np

    pixels = np.round(image[..., 0] * WHITE).astype(np.uint8)
    file = io.BytesIO()
    require("PIL.Image", extra="demo").fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def make_app(files: Sequence[bytes]) -> Starlette:
    """The web application that serves *files*, each after its latency."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    async def serve(request: Request) -> Response:
        index = request.path_params["index"]
        if index >= len(files):
            return Response(status_code=404)
        await asyncio.sleep(latency_s(index))
        return Response(files[index], media_type="image/png")

    return Starlette(routes=[Route("/digits/{index:int}.png", serve)])


def main() -> None:
    """Serve until standard input is closed."""
    import numpy as np
    import uvicorn

    with np.load(DATA / "test.npz", allow_pickle=False) as data:
        app = make_app([png(image) for image in data["images"]])
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False, lifespan="off", ws="none"))

    def stop_at_end_of_input() -> None:
        sys.stdin.buffer.read()
        server.should_exit = True

    threading.Thread(target=stop_at_end_of_input, daemon=True).start()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        server.run(sockets=[listener])


if __name__ == "__main__":
    main()
