"""An agent that is killed, and started again: ``python agent_program.py FOLDER``.

A model is asked in a loop; it asks for tools, which run side by side, and for an approval, which pauses the run.  Calls
are written to ``calls.log`` when they begin.  The model writes to the database of the journal, without a commit of its
own.  The tools call a service with another database, which takes each idempotency key once.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
import threading
from pathlib import Path
from typing import Any

import aiosqlite

import asyncexec as ax

NUM_ROUNDS = 8
TOOLS = 3  # in a round, side by side


class Service:
    """Does what it is asked for once for each key."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._lock = threading.Lock()  # tools run side by side
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("CREATE TABLE IF NOT EXISTS done (key TEXT PRIMARY KEY, what TEXT)")

    async def do(self, key: str, what: str) -> None:
        await asyncio.to_thread(self._insert, key, what)

    def _insert(self, key: str, what: str) -> None:
        with self._lock:
            self._connection.execute("INSERT OR IGNORE INTO done VALUES (?, ?)", (key, what))


def build(connection: aiosqlite.Connection, service: Service, log: int) -> ax.Graph:
    def note(what: str) -> None:
        os.write(log, f"{what} {ax.call_key()}\n".encode())

    @ax.op(outputs=[ax.object, ax.object], shapes=[[], [None]])
    async def ask_model(messages: Any) -> tuple[Any, Any]:
        number = sum(message["role"] == "model" for message in messages)
        note(f"model {number}")
        await connection.execute("INSERT INTO ledger VALUES (?)", (number,))
        await asyncio.sleep(0.004)
        calls = [f"tool {number}.{i}" for i in range(TOOLS)] if number < NUM_ROUNDS else []
        return [*messages, {"role": "model", "text": f"round {number} of {len(messages)}"}], calls

    @ax.op
    async def run_tool(call: str) -> Any:
        note(call)
        await service.do(ax.call_key(), call)
        await asyncio.sleep(0.003)
        return {"role": "tool", "text": call}

    @ax.op
    async def approve(messages: Any) -> Any:
        if sum(message["role"] == "model" for message in messages) % 3:
            return {"role": "user", "text": "nothing to approve"}
        return {"role": "user", "text": await ax.pause("approval", len(messages))}

    @ax.op(outputs=[ax.object], shapes=[[]], pure=True)
    def joined(messages: Any, results: Any, approval: Any) -> Any:
        return [*messages, *results, approval]

    def one_round(messages: ax.Tensor, calls: ax.Tensor) -> Any:
        results = ax.map_fn(run_tool, calls, parallel_iterations=TOOLS)
        return ask_model(joined(messages, results, approve(messages)))

    with ax.Graph() as graph:
        question = ax.placeholder(ax.object, [], name="question")
        messages, _ = ax.while_loop(
            lambda _, calls: ax.size(calls) > 0, one_round, ask_model(question), checkpoint=2, name="agent"
        )
        ax.identity(messages, name="messages")
    return graph


async def main() -> None:
    folder = Path(sys.argv[1])
    log = os.open(folder / "calls.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    service = Service(folder / "service.db")
    async with aiosqlite.connect(folder / "runs.db") as connection:
        await connection.execute("PRAGMA journal_mode=WAL")
        await connection.execute("CREATE TABLE IF NOT EXISTS ledger (number INTEGER)")
        await connection.commit()
        graph = build(connection, service, log)
        async with ax.Session(graph, journal=ax.checkpoint.SQLiteStore(connection)) as session:
            print("ready", flush=True)
            feeds = {"question:0": [{"role": "user", "text": "why?"}]}
            run = session.run("messages:0", feeds, options=ax.RunOptions(run_id="agent"))
            while True:
                try:
                    messages = await run
                    break
                except ax.PausedError as error:
                    token, payload = error.token, error.pauses[0].payload
                run = session.resume(token, f"yes to {payload}")
    (folder / "messages.json").write_text(json.dumps(messages))


if __name__ == "__main__":
    ax.run(main)
