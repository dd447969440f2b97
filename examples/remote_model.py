"""A model that a server serves, used like a session: runs, a map, a stream, deadlines, and an op of a local graph.

    python examples/remote_model.py

It serves the model itself, so that it runs alone.  In production that is ``asyncexec serve models``, and the URL is all
that changes.
"""

from __future__ import annotations

import asyncio

import numpy as np

import asyncexec as ax


@ax.op
async def look_up(customer: str) -> float:
    """How risky the country of a customer is; slow for one that nobody knows."""
    await asyncio.sleep(3600 if customer == "nobody" else 0)
    return 0.5 if customer.endswith(".example") else 0.1


def risk_model() -> ax.service.ModelSource:
    """Inputs amounts and customer; outputs risks and total."""
    with ax.Graph() as graph:
        amounts = ax.placeholder(ax.float32, [None], name="amounts")
        customer = ax.placeholder(ax.string, [], name="customer")
        risks = amounts * ax.cast(look_up(customer), ax.float32)
        total = ax.reduce_sum(risks)
    return ax.service.ModelSource(graph, outputs={"risks": risks, "total": total})


async def use(session: ax.client.RemoteSession) -> None:
    """Everything that a session of a model is used for."""
    print("inputs:", ", ".join(f"{each.name} {each.dtype.name}{each.shape}" for each in session.inputs.values()))
    found = await session.run({"each": "risks", "sum": "total"}, {"amounts": [10, 20], "customer": "a.example"})
    print("one order:", found["each"].tolist(), found["sum"])

    orders = ({"amounts": np.full(3, i, np.float32), "customer": "b.test"} for i in (10, 20, 30))
    async with session.map("total", orders, window=2) as totals:  # two calls at a time, results in order
        print("a map:", [round(total, 2) async for total in totals])

    async with session.stream("total", on_error="yield") as stream:  # one call for all items
        for amounts in ([1.0], "many", [2.0, 3.0]):
            await stream.send({"amounts": amounts, "customer": "c.example"})
        await stream.close()
        async for total in stream:
            print("a stream:", total if not isinstance(total, ax.errors.OpError) else type(total).__name__)

    try:
        await session.run("total", {"amounts": [1], "customer": "nobody"}, options=ax.RunOptions(timeout=0.2))
    except ax.errors.DeadlineExceededError as error:
        print("late:", error)


async def use_in_a_graph(session: ax.client.RemoteSession) -> None:
    """A graph of which a step runs elsewhere; what cancels the step cancels the run in the server."""

    @ax.op(retries=ax.Retry(on=ax.errors.UnavailableError))
    async def risk_of(amounts: list[float], customer: str) -> float:
        total: float = await session.run("total", {"amounts": amounts, "customer": customer})
        return total

    with ax.Graph() as graph:
        customer = ax.placeholder(ax.string, [], name="customer")
        risk = risk_of([5.0, 5.0], customer)
        is_risky = ax.greater(risk, 2.0)
    async with ax.Session(graph, ax.SessionConfig(python_scalars=True)) as local:
        for name in ("d.example", "e.test"):
            print("in a graph:", name, await local.run([risk, is_risky], {customer: name}))


async def main() -> None:
    async with (
        ax.service.serving({"risk": risk_model()}, http_port=0, grpc_port=0) as ports,
        ax.connect(f"grpc://127.0.0.1:{ports.grpc}") as server,
    ):
        print("served:", [(model.name, model.state) for model in await server.models()])
        async with server.session("risk", python_scalars=True) as session:
            await use(session)
            await use_in_a_graph(session)


if __name__ == "__main__":
    ax.run(main)
