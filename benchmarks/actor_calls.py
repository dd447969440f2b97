"""Calls of actors in other processes, of Ray and of dask where they are installed: a value goes, nothing comes back."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

from asyncexec.framework.extras import is_installed

RAY: Final = "a call of a Ray actor"
DASK: Final = "a call of a dask actor"

Call = Callable[[Any], Awaitable[Any]]


class Receiver:
    """Takes values."""

    def take(self, value: Any) -> None:
        """Do nothing with *value*."""


@contextlib.asynccontextmanager
async def of_ray() -> AsyncIterator[Call]:
    """A function that sends a value to an actor of Ray's."""
    import ray

    ray.init(include_dashboard=False, num_cpus=2, logging_level=logging.ERROR, log_to_driver=False)
    try:
        actor = ray.remote(Receiver).remote()

        async def call(value: Any) -> Any:
            return await actor.take.remote(value)

        yield call
    finally:
        ray.shutdown()


@contextlib.asynccontextmanager
async def of_dask() -> AsyncIterator[Call]:
    """A function that sends a value to an actor of dask's."""
    from distributed import Client

    async with Client(n_workers=1, threads_per_worker=1, asynchronous=True, dashboard_address=None) as client:
        actor = await client.submit(Receiver, actor=True)

        async def call(value: Any) -> Any:
            return await actor.take(value)

        yield call


async def all_calls(stack: contextlib.AsyncExitStack) -> dict[str, Call]:
    """Those of what is installed, by name."""
    found: dict[str, Call] = {}
    if is_installed("ray"):
        found[RAY] = await stack.enter_async_context(of_ray())
    if is_installed("distributed"):
        found[DASK] = await stack.enter_async_context(of_dask())
    return found
