"""A FastAPI service whose /score asks three services and a database side by side, and a model in batches, in 200 ms.

As a program it sends itself requests; the services are fakes in this process.  An argument is another deadline:

    python examples/fastapi_score.py 0.5
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiosqlite
import httpx
import numpy as np
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse
from numpy.typing import NDArray

import asyncexec as ax

WEIGHTS = np.array([0.1, 0.02, 1.0, 0.5], np.float32)

services = FastAPI()  # the three services that a score needs


@services.get("/{service}/{customer}")
async def answer(service: str, customer: str) -> float:
    await asyncio.sleep(3600 if (service, customer) == ("orders", "slow") else 0.005)
    if (service, customer) in {("reputation", "new"), ("payments", "broken")}:
        raise HTTPException(500, f"{service} is down")
    return float(len(customer))


def build(client: httpx.AsyncClient, database: aiosqlite.Connection) -> tuple[ax.Graph, ax.Tensor, Any]:
    """The graph, what a request feeds, and what it fetches; the ops use *client* and *database*."""

    @ax.op(retries=ax.Retry(attempts=2, wait_initial_s=0.01), limiter=50)
    async def ask(service: str, customer: str) -> float:
        response = await client.get(f"/{service}/{customer}")
        return float(response.raise_for_status().json())

    @ax.op
    async def age_of_account(customer: str) -> int:
        async with database.execute("select age from accounts where customer = ?", [customer]) as rows:
            row = await rows.fetchone()
        if row is None:
            raise LookupError(f"no customer {customer!r}")
        return int(row[0])

    @ax.op(shapes=[[None]])
    def model(rows: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.tanh(rows @ WEIGHTS / 10)

    @ax.batch(max_size=32, timeout_s=0.002)
    def score(rows: ax.Tensor) -> ax.Tensor:
        return model(rows)

    with ax.Graph() as graph:
        customer = ax.placeholder(ax.string, [], name="customer")
        orders, payments = (ask(service, customer, name=service) for service in ("orders", "payments"))
        timeout = app.state.deadline_s / 2  # then a score without it is better than none; a second attempt is too late
        reputation = ask("reputation", customer, name="reputation", retries=0, timeout=timeout, fallback=0.5)
        inputs = [orders, payments, reputation, age_of_account(customer)]
        row = ax.stack([ax.cast(value, ax.float32) for value in inputs])
        result = {"score": ax.squeeze(score(ax.expand_dims(row, 0))), "reputation": reputation}
    return graph, customer, result


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    limits = {"timeout": app.state.deadline_s, "max_concurrent_steps": 100, "max_queued_steps": 1000}
    upstream = httpx.AsyncClient(transport=httpx.ASGITransport(app=services), base_url="http://services")
    async with upstream as client, aiosqlite.connect(":memory:") as db:
        await db.execute("create table accounts (customer text primary key, age integer)")
        await db.execute("insert into accounts values ('regular', 7), ('new', 1), ('broken', 2), ('slow', 3)")
        graph, customer, result = build(client, db)
        async with ax.Session(graph, ax.SessionConfig(python_scalars=True, **limits)) as session:
            # The first run prepares the graph, and that counts: no request shall be the first.
            await session.run(result, {customer: "regular"}, options=ax.RunOptions(timeout=60))
            app.state.score = session.make_callable(result, [customer])
            yield


app = FastAPI(lifespan=lifespan)
app.state.deadline_s = 0.2


@app.get("/score")
async def get_score(customer: str, request: Request) -> dict[str, float]:
    found: dict[str, float] = await request.app.state.score(customer)
    return found


@app.exception_handler(ax.errors.OpError)
async def failed(request: Request, error: ax.errors.OpError) -> JSONResponse:
    """The answer to a request whose step has failed: its error is also of the class that the op raised."""
    if isinstance(error, LookupError):
        return JSONResponse({"detail": str(error.__cause__)}, 404)
    if isinstance(error, httpx.HTTPError):
        return JSONResponse({"detail": f"{error.node} failed"}, 502)
    if isinstance(error, ax.errors.DeadlineExceededError):
        return JSONResponse({"detail": f"too late: {', '.join(node.node for node in error.under_way)}"}, 504)
    if isinstance(error, ax.errors.ResourceExhaustedError):
        return JSONResponse({"detail": "try later"}, 503, {"Retry-After": "1"})
    return JSONResponse({"detail": "internal error"}, 500)


async def main() -> None:
    names = ["regular", "new", "unknown", "broken", "slow"]
    test = httpx.ASGITransport(app=app)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=test, base_url="http://test") as client:
        for response in await asyncio.gather(*(client.get("/score", params={"customer": name}) for name in names)):
            print(response.url.params["customer"], response.status_code, response.json())


if __name__ == "__main__":
    app.state.deadline_s = float(sys.argv[1]) if len(sys.argv) > 1 else app.state.deadline_s
    asyncio.run(main())
