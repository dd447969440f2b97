"""Records from a database, enriched over an HTTP API that is slow and fails at times, and written back.

The graph says what happens to one order; each order is a run of it, all of them at once.  How long a call may take, how
often it is tried again and how many run at a time are options of the op.  It needs ``pip install "asyncexec[demo]"
aiosqlite``.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial

import aiosqlite
import httpx

import asyncexec as ax

ORDERS = [(1, 100, "EUR"), (2, 250, "USD"), (3, 9900, "JPY"), (4, 80, "GBP"), (5, 60, "XXX"), (6, 70, "USD")]
RATES = {"EUR": 1.0, "USD": 0.9, "JPY": 0.006, "GBP": 1.2}


def build_graph(database: aiosqlite.Connection, api: httpx.AsyncClient) -> ax.Graph:
    """Read an order, ask for the exchange rate, compute, and write the result back."""

    @ax.op
    async def read_order(order_id: int) -> tuple[float, str]:
        async with database.execute("SELECT amount, currency FROM orders WHERE id = ?", (int(order_id),)) as cursor:
            row = await cursor.fetchone()
        if row is None:
            raise LookupError(f"there is no order {order_id}")
        return row[0], row[1]

    @ax.op(timeout=1.5, retries=2, limiter=4)
    async def exchange_rate(currency: str) -> float:
        response = await api.get(f"/rates/{currency}")
        response.raise_for_status()
        return float(response.text)

    @ax.op
    async def write_order(order_id: int, euros: float) -> None:
        await database.execute("UPDATE orders SET euros = ? WHERE id = ?", (float(euros), int(order_id)))

    with ax.Graph() as graph:
        order_id = ax.placeholder(ax.int64, [], name="order_id")
        amount, currency = read_order(order_id)
        euros = ax.multiply(amount, exchange_rate(currency), name="euros")
        write_order(order_id, euros, name="written")
    return graph


async def enrich(session: ax.Session, order_id: int) -> str:
    """One order; what goes wrong with it is no business of the others."""
    try:
        euros, _ = await session.run(["euros:0", "written"], {"order_id:0": order_id})
    except ax.errors.OpError as error:
        return f"order {order_id}: {error.node} failed: {error.__cause__ or error.message}".splitlines()[0]
    return f"order {order_id}: {euros:.2f} EUR"


async def answer(calls: Counter[str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """The API: a few milliseconds a call, no answer to the first for GBP, an error on the first for JPY."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):  # the caller gave up before it had asked
        writer.close()
        return
    currency = head.split()[1].decode().rpartition("/")[2]
    calls[currency] += 1
    first = calls[currency] == 1
    await (reader.read() if first and currency == "GBP" else asyncio.sleep(0.003))  # read: until the caller gives up
    status = "404 Not Found" if currency not in RATES else "503 Busy" if first and currency == "JPY" else "200 OK"
    body = str(RATES.get(currency, ""))
    writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode())
    writer.close()


async def main() -> None:
    calls: Counter[str] = Counter()
    server = await asyncio.start_server(partial(answer, calls), "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    async with (
        server,
        aiosqlite.connect(":memory:") as database,
        httpx.AsyncClient(base_url=f"http://{host}:{port}", trust_env=False) as api,
        ax.Session(build_graph(database, api)) as session,
    ):
        await database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, amount REAL, currency TEXT, euros REAL)")
        await database.executemany("INSERT INTO orders (id, amount, currency) VALUES (?, ?, ?)", ORDERS)
        for line in await asyncio.gather(*(enrich(session, order_id) for order_id in range(1, 8))):
            print(line)
        async with database.execute("SELECT count(euros), sum(euros) FROM orders") as cursor:
            row = await cursor.fetchone()
        assert row is not None
        print(f"{row[0]} of {len(ORDERS)} orders written, {row[1]:.2f} EUR in all")
        print("calls:", ", ".join(f"{currency} {count}" for currency, count in sorted(calls.items())))


if __name__ == "__main__":
    ax.run(main)
