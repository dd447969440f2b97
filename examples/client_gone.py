"""A web service that stops working for clients that have gone: the step of a request ends with the request.

A server tells of a client that went away by the message ``http.disconnect``; the handler listens for it beside the step
and then cancels that.  The kernel under way gets a ``CancelledError``, so its ``finally`` gives back what it holds.
Serve it with ``uvicorn --app-dir examples client_gone:app`` and interrupt ``curl
localhost:8000/answer?question=everything``; run, it is its own client.  It needs ``pip install "asyncexec[demo]"``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

import asyncexec as ax


class Model:
    """A model somewhere else; a question occupies one of its seats, and the answer can take very long."""

    def __init__(self) -> None:
        self.seats: set[str] = set()
        self.is_busy = asyncio.Event()  # with a question that has no end

    async def ask(self, question: str) -> str:
        self.seats.add(question)
        try:
            if question == "everything":
                self.is_busy.set()
            await asyncio.sleep(3600 if question == "everything" else 0.001)
            return question[::-1]
        finally:
            self.seats.remove(question)
            print(f"  the seat of {question!r} is free again")


def build_graph(model: Model) -> ax.Graph:
    with ax.Graph() as graph:
        question = ax.placeholder(ax.string, [], name="question")
        ax.string_join(["The answer is ", ax.op(model.ask)(question), "."], name="answer")
    return graph


async def answer(request: Request) -> Response:
    """The answer, or nothing for who is not there to get it."""
    step = request.app.state.session.run("answer:0", {"question:0": request.query_params["question"]})
    text = await while_connected(request, step)
    return Response(status_code=499) if text is None else JSONResponse({"answer": text.decode()})


async def while_connected(request: Request, step: Coroutine[Any, Any, bytes]) -> bytes | None:
    """What *step* gives; None, and the step is cancelled and has ended, when the client goes first."""
    running, gone = asyncio.create_task(step), asyncio.create_task(disconnected(request))
    try:
        await asyncio.wait((running, gone), return_when=asyncio.FIRST_COMPLETED)
    finally:  # also when a server cancels the handler itself
        running.cancel()
        gone.cancel()
        await asyncio.wait((running, gone))
    return None if running.cancelled() else running.result()


async def disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    app.state.model = Model()
    async with ax.Session(build_graph(app.state.model)) as app.state.session:
        yield


app = Starlette(routes=[Route("/answer", answer)], lifespan=lifespan)


async def closed_connection(model: Model) -> int:
    """The status when the app gets what uvicorn sends of a connection that is closed during a call."""
    status: list[int] = []
    model.is_busy.clear()

    async def receive() -> dict[str, Any]:
        await model.is_busy.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        status.append(message.get("status"))

    scope = {"type": "http", "method": "GET", "path": "/answer", "query_string": b"question=everything", "headers": []}
    await app(scope, receive, send)
    return status[0]


async def main() -> None:
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://app") as client,
    ):
        model: Model = app.state.model
        print("who waits gets", (await client.get("/answer", params={"question": "why"})).json())
        request = asyncio.create_task(client.get("/answer", params={"question": "everything"}))
        await model.is_busy.wait()
        print("under way:", sorted(model.seats))
        request.cancel()
        await asyncio.wait((request,))
        print("after the client has gone:", sorted(model.seats))
        print("a connection that is closed: status", await closed_connection(model), "and", sorted(model.seats))
        print("the service goes on:", (await client.get("/answer", params={"question": "how"})).json())


if __name__ == "__main__":
    ax.run(main)
