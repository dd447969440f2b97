"""``python -m tests.oracle.differences [--cases 55] [--op OP ...] [--number N]``: a table by op."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import Counter, defaultdict

from tests.oracle.differences import generator, ours
from tests.oracle.differences.compare import DIFFERENCES, Verdict, compare
from tests.oracle.differences.worker import Oracle, decode


async def sweep(op: str, numbers: range, oracle: Oracle) -> dict[Verdict, list[int]]:
    """The numbers of the cases of *op* by what they came to."""
    found: defaultdict[Verdict, list[int]] = defaultdict(list)
    for number in numbers:
        oracle.ask(op, number)
        case = generator.draw(op, number)
        answer = await ours.run(case)
        found[compare(case, answer, oracle.answer())].append(number)
    return dict(found)


async def show(op: str, number: int, oracle: Oracle) -> None:
    """One case with both answers."""
    case = generator.draw(op, number)
    oracle.ask(op, number)
    answer, theirs = await ours.run(case), oracle.answer()
    print(f"--- {op} {number}: {compare(case, answer, theirs)} attrs {dict(case.attrs)}")
    for value in case.inputs:
        print("  input", getattr(value, "dtype", ""), getattr(value, "shape", ""), str(value)[:160])
    print("  ours  ", repr(answer)[:260])
    print("  theirs", repr([decode(o) for o in theirs["outputs"]] if theirs and "outputs" in theirs else theirs)[:260])


async def table(ops: list[str], numbers: range, oracle: Oracle) -> None:
    """Each op with its counts and the first numbers of what differs."""
    total: Counter[Verdict] = Counter()
    started = time.monotonic()
    for op in ops:
        found = await sweep(op, numbers, oracle)
        total.update({verdict: len(cases) for verdict, cases in found.items()})
        differing = {v: c for v, c in found.items() if v in DIFFERENCES or v is Verdict.ABORTS}
        shown = "; ".join(f"{v} {len(c)} {c[:5]}" for v, c in sorted(differing.items()))
        print(f"{op:40} {len(found.get(Verdict.AGREE, ())):4} agree  {shown}", flush=True)
    print(f"{sum(total.values())} cases of {len(ops)} ops in {time.monotonic() - started:.0f} s")
    for verdict in Verdict:
        print(f"  {verdict:12} {total[verdict]:6} {100 * total[verdict] / max(1, sum(total.values())):5.1f} %")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.oracle.differences")
    parser.add_argument("--cases", type=int, default=55)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--op", action="append")
    parser.add_argument("--number", type=int, action="append")
    args = parser.parse_args()
    oracle = Oracle()
    ops = args.op or generator.ops()
    try:
        if args.number is None:
            asyncio.run(table(ops, range(args.first, args.first + args.cases), oracle))
            return
        for op in ops:
            for number in args.number:
                asyncio.run(show(op, number, oracle))
    finally:
        oracle.close()


if __name__ == "__main__":
    main()
