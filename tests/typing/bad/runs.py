"""Runs that are wrong, and that type checkers find.  This is not run."""

from __future__ import annotations

import asyncexec as ax


@ax.op
def text(number: float) -> str:
    return str(number)


async def main(session: ax.Session, blocking: ax.BlockingSession, x: ax.Tensor) -> None:
    shown = text(x)
    await session.run(3)  # error
    await session.run([shown, 3])  # error
    await session.run((shown, 3))  # error
    await session.run({"shown": 3})  # error
    await session.run(None)  # error
    await session.run(shown, 3)  # error
    await session.run(shown, targets=[3])  # error
    await session.run(shown, timeout=3)  # error
    await session.run(shown, options=3)  # error
    number: float = await session.run(shown)  # error
    (await session.run(shown.op)).shape  # error
    first, second, _ = await session.run((shown, shown))  # error
    session.make_callable(3)  # error
    session.map(3, [])  # error
    session.stream(shown, on_error="ignore")  # error
    blocking.run(3)  # error
    wrong: int = blocking.run(shown)  # error
    async for out in session.map(shown, []):
        number = out  # error
    async with session.partial_run(3) as step:  # error
        await step.fetch(3)  # error
    ax.Session(3)  # error
    ax.run(3)  # error
    print(number, first, second, wrong)
