"""An API that allows few calls at a time and fails now and then: one limiter for all, retries that back off.

The limiter has a name, so that every op that calls the API shares it, in whichever graph and session.  What is worth
another attempt is said by the exception: ``BusyError`` is, an unknown city is not.  The API is a stub inside this
program.  It needs ``pip install "asyncexec[demo]"``.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import httpx

import asyncexec as ax

MOST_AT_ONCE = 3
CITIES = ["Accra", "Bogota", "Cairo", "Dhaka", "Essen", "Fargo", "Graz", "Hanoi", "Izmir", "Jinan"]


class BusyError(Exception):
    """The API says: later."""


def build_graph(api: httpx.AsyncClient) -> ax.Graph:
    """From the name of a city to its weather in words."""

    async def get(path: str) -> httpx.Response:
        response = await api.get(path)
        if response.status_code in (429, 503):
            raise BusyError(f"{response.status_code} for {path}")
        response.raise_for_status()
        return response

    ax.Limiter(MOST_AT_ONCE, name="weather API")
    retry = ax.Retry(attempts=3, on=BusyError, wait_initial_s=0.004, wait_max_s=0.02)

    @ax.op(limiter="weather API", retries=retry, timeout=5)
    async def position(city: str) -> str:
        return (await get(f"/position/{city}")).text

    @ax.op(limiter="weather API", retries=retry, timeout=5)
    async def temperature(place: str) -> float:
        return float((await get(f"/temperature/{place}")).text)

    with ax.Graph() as graph:
        city = ax.placeholder(ax.string, [], name="city")
        degrees = temperature(position(city))
        ax.string_join([city, ": ", ax.as_string(degrees, precision=1), " degrees"], name="weather")
    return graph


class Api:
    """Refuses who comes while it is full, is out of order for Essen, and fails on the first call for Dhaka."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.open = self.most_open = 0

    async def answer(self, request: httpx.Request) -> httpx.Response:
        what, name = request.url.path.strip("/").split("/")
        self.calls[name] += 1
        if self.open == MOST_AT_ONCE:
            return httpx.Response(429)
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        await asyncio.sleep(0.002)
        self.open -= 1
        if what == "temperature":
            return httpx.Response(200, text=str(10 + len(name)))
        if name not in CITIES:
            return httpx.Response(404)
        is_out_of_order = name == "Essen" or (name == "Dhaka" and self.calls[name] == 1)
        return httpx.Response(503) if is_out_of_order else httpx.Response(200, text=f"{name}-{name.lower()}")


async def weather(session: ax.Session, city: str) -> str:
    """The weather of a city, or all that was tried to get it."""
    metadata = ax.RunMetadata()
    try:
        text: bytes = await session.run(
            "weather:0", {"city:0": city}, options=ax.RunOptions(trace=True), metadata=metadata
        )
    except ax.errors.OpError as error:
        lines = [f"{city}: {error.node} failed: {error.message}"]
        return "\n  ".join([*lines, *getattr(error.__cause__, "__notes__", ())])
    attempts = sum(node.attempts for device in metadata.step_stats.dev_stats for node in device.node_stats)
    return f"{text.decode()}, by {attempts} calls"


async def main() -> None:
    api = Api()
    async with (
        httpx.AsyncClient(transport=httpx.MockTransport(api.answer), base_url="http://api") as client,
        ax.Session(build_graph(client)) as session,
    ):
        for line in await asyncio.gather(*(weather(session, city) for city in [*CITIES, "Atlantis"])):
            print(line)
    print(f"{api.calls.total()} calls, {api.most_open} at a time, never refused")


if __name__ == "__main__":
    ax.run(main)
