"""Rows of a FastAPI service: what a request costs whose handler awaits ``session.run``, beside the same by hand.

A request asks three services over HTTP and a table, and then a model.  Two of the services are called again if they
fail, the third has a tenth of a second and a fallback, all three share a limit, and the request has a deadline.
The floor has all of it in plain asyncio: a TaskGroup, a semaphore, a loop of attempts, timeouts.  The services are an
ASGI app in this process, and the requests come the same way, many at a time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import asyncexec as ax
from asyncexec.framework.extras import is_installed
from benchmarks.async_ops import LOOPS, loop_factory
from benchmarks.measure import Settings, Times, alternate, calling, ratios
from benchmarks.report import FLOOR, OURS, Benchmark, Row, Target
from benchmarks.runs import US_PER_S

NUM_REQUESTS: Final = 32  # at a time
WARM_ROUNDS: Final = 25  # of so many requests: behind these the graph is compiled and optimized
MAX_RATIO: Final = 1.3
DEADLINE_S: Final = 10.0  # long, as nothing is to be late on a busy machine
ATTEMPTS: Final = 2
WAIT_S: Final = 0.01
REPUTATION_S: Final = 0.1
NO_REPUTATION: Final = 0.5
MAX_CALLS: Final = 3 * NUM_REQUESTS // 2  # of the services, at once
AGES: Final = {"regular": 7, "new": 1, "broken": 2}
WEIGHTS: Final = np.array([0.1, 0.02, 1.0, 0.5], np.float32)

Call = Callable[[str, str], Awaitable[float]]
Handler = Callable[[str], Awaitable[dict[str, float]]]


def model(row: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.tanh(row @ WEIGHTS / 10)


async def age_of(customer: str) -> int:
    """What a database would be asked for."""
    await asyncio.sleep(0)
    if customer not in AGES:
        raise LookupError(f"no customer {customer!r}")
    return AGES[customer]


def in_a_graph(call: Call) -> tuple[ax.Graph, ax.Tensor, Any]:
    """The graph, what a request feeds, and what it fetches."""
    ask = ax.op(name="ask", retries=ax.Retry(ATTEMPTS, wait_initial_s=WAIT_S), limiter=MAX_CALLS)(call)
    read_age, score = ax.op(age_of), ax.op(shapes=[[]])(model)
    with ax.Graph() as graph:
        customer = ax.placeholder(ax.string, [], name="customer")
        orders, payments = (ask(service, customer, name=service) for service in ("orders", "payments"))
        reputation = ask(
            "reputation", customer, name="reputation", retries=0, timeout=REPUTATION_S, fallback=NO_REPUTATION
        )
        inputs = [orders, payments, reputation, read_age(customer)]
        result = {
            "score": score(ax.stack([ax.cast(value, ax.float32) for value in inputs])),
            "reputation": reputation,
        }
    return graph, customer, result


def by_hand(call: Call) -> Handler:
    """The same in plain asyncio."""
    limiter = asyncio.Semaphore(MAX_CALLS)

    async def ask(service: str, customer: str) -> float:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                async with limiter:
                    return await call(service, customer)
            except (ValueError, LookupError):
                raise
            except Exception:
                if attempt == ATTEMPTS:
                    raise
            await asyncio.sleep(WAIT_S * 2 ** (attempt - 1) * random.uniform(0.5, 1))
        raise AssertionError

    async def reputation_of(customer: str) -> float:
        try:
            async with limiter, asyncio.timeout(REPUTATION_S):
                return await call("reputation", customer)
        except Exception:
            return NO_REPUTATION

    async def answer(customer: str) -> dict[str, float]:
        async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as tasks:
            calls = [
                tasks.create_task(ask("orders", customer)),
                tasks.create_task(ask("payments", customer)),
                tasks.create_task(reputation_of(customer)),
                tasks.create_task(age_of(customer)),
            ]
        found = [call.result() for call in calls]
        return {"score": float(model(np.array(found, np.float32))), "reputation": found[2]}

    return answer


def app_of(handlers: dict[str, Handler], failures: dict[type[Exception], int]) -> Any:
    """An app with a path for each of *handlers*, whose *failures* have a status."""
    from fastapi import FastAPI
    from fastapi.responses import JSONResponse

    app = FastAPI()
    for name, handler in handlers.items():
        app.get(f"/{name}")(handler)

    async def failed(_: Any, error: Exception) -> JSONResponse:
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        status = next((status for kind, status in failures.items() if isinstance(error, kind)), 500)
        return JSONResponse({"detail": type(error.__cause__ or error).__name__}, status)

    for kind in (ax.errors.OpError, ExceptionGroup, TimeoutError):
        app.exception_handler(kind)(failed)
    return app


def services() -> Any:
    """The services that a score needs."""
    from fastapi import FastAPI, HTTPException

    app = FastAPI()

    @app.get("/{service}/{customer}")
    async def answer(service: str, customer: str) -> float:
        if (service, customer) in {("reputation", "new"), ("payments", "broken")}:
            raise HTTPException(500, f"{service} is down")
        return float(len(customer))

    return app


def measure_service(loop: str, settings: Settings) -> Row:
    """Microseconds a request."""
    with asyncio.Runner(loop_factory=loop_factory(loop)) as runner:
        times = runner.run(_race(settings))
    found = ratios(times[OURS], [times[FLOOR]])
    target = Target(f"at most {MAX_RATIO:g} of by hand", None if found is None else found[0], MAX_RATIO)
    per_request = {name: each.scaled(US_PER_S / NUM_REQUESTS) for name, each in times.items()}
    return Row(f"fastapi_service_{loop}", "µs a request", per_request, (target,))


async def _race(settings: Settings) -> dict[str, Times]:
    import httpx

    def client_of(app: Any) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test")

    async with client_of(services()) as upstream:

        async def call(service: str, customer: str) -> float:
            response = await upstream.get(f"/{service}/{customer}")
            return float(response.raise_for_status().json())

        graph, fed, result = in_a_graph(call)
        config = ax.SessionConfig(timeout=DEADLINE_S, max_concurrent_steps=100, python_scalars=True)
        async with ax.Session(graph, config) as session:

            async def answer(customer: str) -> dict[str, float]:
                found: dict[str, float] = await session.run(result, {fed: customer})
                return found

            failures = {LookupError: 404, httpx.HTTPError: 502, TimeoutError: 504}
            async with client_of(app_of({"ours": answer, "floor": by_hand(call)}, failures)) as client:
                await _check_that_both_answer_alike(client)

                async def at_once(path: str) -> None:
                    for response in await asyncio.gather(*(client.get(path) for _ in range(NUM_REQUESTS))):
                        response.raise_for_status()

                ours, floor = (partial(at_once, f"/{path}?customer=regular") for path in ("ours", "floor"))
                for _ in range(WARM_ROUNDS):
                    await ours()
                    await floor()
                contestants = [await calling(OURS, ours), await calling(FLOOR, floor)]
                return await alternate(contestants, settings, rounds=10)


async def _check_that_both_answer_alike(client: Any) -> None:
    for customer in (*AGES, "unknown"):
        ours, floor = [await client.get(f"/{path}?customer={customer}") for path in ("ours", "floor")]
        if (ours.status_code, ours.json()) != (floor.status_code, floor.json()):
            raise AssertionError(f"{customer}: {ours.text} or {floor.text}")


BENCHMARKS: Final = tuple(
    Benchmark(f"fastapi_service_{loop}", partial(measure_service, loop))
    for loop in (LOOPS if is_installed("fastapi") and is_installed("httpx") else ())
)
