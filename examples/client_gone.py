"""A web service that stops working for clients that have gone: the step of a request ends with the request.

A server tells of a client that went away by the message ``http.disconnect``.  A task beside the step listens for it and
cancels the scope that both are in; the kernel under way gets a ``CancelledError``, so its ``finally`` gives back what
it holds.  Serve it with ``uvicorn --app-dir examples client_gone:app`` and interrupt ``curl
localhost:8000/answer?question=everything``; run, it serves itself and is its own client.  It needs ``pip install
"asyncexec[demo]"``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

import asyncexec as ax


class Model:
    """A model somewhere else; a question occupies one of its seats, and the answer can take very long."""

    def __init__(self) -> None:
        self.seats: set[str] = set()

    async def ask(self, question: str) -> str:
        self.seats.add(question)
        try:
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
    """The answer; for who is not there to get it, nothing is done any more."""
    session: ax.Session = request.app.state.session
    async with anyio.create_task_group() as group:
        group.start_soon(cancel_when_gone, request, group.cancel_scope)
        text = await session.run("answer:0", {"question:0": request.query_params["question"]})
        group.cancel_scope.cancel()
        return JSONResponse({"answer": text.decode()})
    return Response(status_code=499)  # which nobody reads; it stands in the log


async def cancel_when_gone(request: Request, scope: anyio.CancelScope) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    app.state.model = Model()
    async with ax.Session(build_graph(app.state.model)) as app.state.session:
        yield


app = Starlette(routes=[Route("/answer", answer)], lifespan=lifespan)


@asynccontextmanager
async def served() -> AsyncIterator[str]:
    """The address of the app, while it is served."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, ws="none", log_level="warning"))
    serving = asyncio.create_task(server.serve())
    await until(lambda: server.started)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    await serving


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.001)


async def main() -> None:
    async with served() as address, httpx.AsyncClient(base_url=address) as client:
        model: Model = app.state.model
        print("who waits gets", (await client.get("/answer", params={"question": "why"})).json())
        request = asyncio.create_task(client.get("/answer", params={"question": "everything"}))
        await until(lambda: "everything" in model.seats)
        print("under way:", sorted(model.seats))
        request.cancel()  # which closes the connection
        await until(lambda: not model.seats)
        print("after the client has gone:", sorted(model.seats))
        print("the service goes on:", (await client.get("/answer", params={"question": "how"})).json())


if __name__ == "__main__":
    ax.run(main)
