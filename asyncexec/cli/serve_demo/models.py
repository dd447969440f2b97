"""DemoRepository: the models of the demo, and what calls them as long as they are served."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Final

from asyncexec.cli.demo import http_client
from asyncexec.cli.demo_server import DATA
from asyncexec.cli.serve_demo.graphs import crawler, digits, sensors
from asyncexec.cli.serve_demo.site import site
from asyncexec.framework.errors import OpError
from asyncexec.framework.extras import require
from asyncexec.service.models.repository import ModelRepository
from asyncexec.service.requests import InferRequest, InferTensor

if TYPE_CHECKING:
    from asyncexec.framework.arrays import Array

NUM_CALLERS: Final = 6
PERIOD_S: Final = 40.0  # of the tide of calls
READING_S: Final = 0.025
WINDOW: Final = 16  # readings at a time


class DemoRepository(ModelRepository):
    """Digits, a crawler and a stream of sensor readings, with a site to crawl, and callers."""

    def __init__(self, *, has_load: bool = True) -> None:
        super().__init__()
        self._has_load = has_load
        self._stack = AsyncExitStack()
        self._callers: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Open the site, load the models, and begin to call them."""
        logging.getLogger("httpx").setLevel(logging.WARNING)  # it tells of each page
        address = await self._stack.enter_async_context(site())
        web = await self._stack.enter_async_context(http_client(concurrency=8))
        web.base_url = address
        await web.get("/")  # the first request of all loads parts of httpx
        self._sources = await asyncio.to_thread(
            lambda: {"digits": digits(), "crawler": crawler(web), "sensors": sensors()}
        )
        await super().start()
        if self._has_load:
            images = await asyncio.to_thread(_images)
            calls = [
                *(self._tell_digits(images, caller) for caller in range(NUM_CALLERS)),
                self._crawl(),
                self._sense(),
            ]
            self._callers = [asyncio.create_task(call) for call in calls]

    def stop_being_ready(self) -> None:
        for task in self._callers:
            task.cancel()
        super().stop_being_ready()

    async def close(self) -> None:
        self.stop_being_ready()
        await asyncio.gather(*self._callers, return_exceptions=True)
        await super().close()
        await self._stack.aclose()

    async def _tell_digits(self, images: Array, caller: int) -> None:
        """Calls with few images each, more of them at high tide; some have the wrong size."""
        import numpy as np

        choose, loop = random.Random(caller), asyncio.get_running_loop()
        while True:
            tide = 1.1 + math.sin(2 * math.pi * loop.time() / PERIOD_S)
            await asyncio.sleep(choose.expovariate(4 + 20 * tide))
            if choose.random() < 0.001:
                await self._call("digits", "images", "FP32", np.zeros((1, 28, 28, 1), np.float32))
                continue
            first, count = choose.randrange(len(images) - 4), choose.choice((1, 1, 1, 2, 4))
            await self._call("digits", "images", "FP32", images[first : first + count])

    async def _crawl(self) -> None:
        """Crawls from one page after the other; one of them is not there."""
        import numpy as np

        number = 0
        while True:
            path = "/missing" if number % 8 == 7 else f"/page/{number % 40 + 1}"
            await self._call("crawler", "start", "BYTES", np.array([path.encode()], object))
            await asyncio.sleep(1.0)
            number += 1

    async def _sense(self) -> None:
        """A stream that does not end."""
        model = self.model("sensors")
        message = model.signature.inputs["message"].tensor
        fetches = [spec.tensor for spec in model.signature.outputs.values()]
        feeds = ({message: text} async for text in _messages())
        async with model.session.map(fetches, feeds, window=WINDOW, on_error="yield") as readings:
            async for _ in readings:
                pass

    async def _call(self, name: str, tensor: str, datatype: str, array: Array) -> None:
        with suppress(OpError):  # the page shows it
            await self.model(name).infer(InferRequest(name, {tensor: InferTensor(datatype, array)}))


def demo_repository() -> DemoRepository:
    """The models of the demo; MissingExtraError, with the command that installs all, where a library is missing."""
    for module in ("grpc", "httpx", "orjson", "prometheus_client", "starlette", "uvicorn"):
        require(module, extra="demo,serve")
    return DemoRepository()


def _images() -> Array:
    import numpy as np

    with np.load(DATA / "test.npz", allow_pickle=False) as data:
        images: Array = data["images"]
    return images


async def _messages() -> AsyncIterator[str]:
    """Readings of two sensors: now and then one is off, and one cannot be read."""
    choose, number = random.Random(0), 0
    while True:
        await asyncio.sleep(READING_S)
        number += 1
        off = 9.0 if number % 97 == 0 else 0.0
        sensor, offset = ("a", 0.0) if number % 2 else ("b", 1.5)
        degrees = 20.0 + math.sin(number / 60) + choose.gauss(0, 0.3) + off + offset
        text = json.dumps({"sensor": sensor, "degrees": round(degrees, 2)})
        yield text[:20] if number % 211 == 0 else text
