"""An agent whose loop is in the graph: a model chooses a tool, the calls of a round overlap, and findings are kept.

A tool that fails for one place is a finding like any other, and does not stop the rest.  If the agent ends early,
because it has no rounds left or because the model is gone, the findings of the rounds before are still its answer.
The model is a fake in this process, and so are the tools:

    python examples/agent_loop.py
"""

import asyncio
from typing import Any

import asyncexec as ax

MAX_ROUNDS = 5
TOOLS = ["search", "weather", "finish"]
SCRIPT = {  # what the fake model does in each round of a question: a tool, and what to call it with
    "Where is it warm?": [("search", ["warm places"]), ("weather", ["Accra", "Atlantis", "Essen"]), ("finish", [])],
    "Where is it cold?": [("search", ["cold places"]), ("model is gone", [])],
    "What is the question?": [("search", [f"thought {number}"]) for number in range(100)],
}
model_calls = ax.Limiter(4, name="model")  # at once, in all agents


@ax.op(outputs=[ax.int64, ax.object], shapes=[[], [None]], timeout=30, limiter=model_calls)
async def choose(question: str, round_: int, findings: Any) -> tuple[Any, Any]:
    """The number of a tool, and what to call it with; a real model reads the question and the findings."""
    await asyncio.sleep(0.005)  # await client.chat(...)
    tool, arguments = SCRIPT[question][round_]
    if tool not in TOOLS:
        raise ConnectionError("the model is gone")
    return TOOLS.index(tool), arguments


@ax.op(timeout=5)
async def search(words: str) -> object:
    await asyncio.sleep(0.005)
    return f"3 pages about {words}"


@ax.op(timeout=5)
async def weather(place: str) -> object:
    await asyncio.sleep(0.005)
    if place == "Atlantis":
        raise LookupError(f"there is no {place}")
    return f"{place}: {10 + 4 * len(place)} degrees"


@ax.op(outputs=[ax.object], shapes=[[]])
def with_results(findings: Any, results: Any) -> Any:
    """A new list: others may see the one that it gets."""
    told = [f"failed: {each.message}" if isinstance(each, ax.errors.OpError) else each for each in results]
    return [*findings, *told]


@ax.op
def reason(error: ax.errors.OpError) -> str:
    return error.message


def build() -> tuple[ax.Graph, ax.Tensor, list[ax.Tensor]]:
    """The graph, the question that it is fed, and what the agent gives: its rounds, its findings and why it ended."""

    def use(tool: Any, arguments: ax.Tensor) -> ax.Tensor:
        results: ax.Tensor = ax.map_fn(tool, arguments, parallel_iterations=8, on_error="yield")
        return results

    with ax.Graph() as graph:
        question = ax.placeholder(ax.string, [], name="question")

        def one_round(rounds: ax.Tensor, findings: ax.Tensor, ended: ax.Tensor) -> list[ax.Tensor]:
            def try_it() -> list[ax.Tensor]:
                tool, arguments = choose(question, rounds, findings)
                results = ax.switch_case(
                    tool, [lambda: use(search, arguments), lambda: use(weather, arguments), lambda: arguments]
                )
                done = ax.where(ax.equal(tool, TOOLS.index("finish")), "it is done", "")
                return [rounds + 1, with_results(findings, results), done]

            # A round that fails changes nothing but why the agent ends.
            after: list[ax.Tensor] = ax.catch(try_it, lambda error: [rounds, findings, reason(error)])
            return after

        start = [0, ax.constant([], ax.object), ""]
        agent = ax.while_loop(
            lambda rounds, findings, ended: ax.equal(ended, ""),
            one_round,
            start,
            maximum_iterations=MAX_ROUNDS,
            name="agent",
        )
    return graph, question, agent


async def main() -> None:
    graph, question, agent = build()
    async with ax.Session(graph, ax.SessionConfig(python_scalars=True, timeout=60)) as session:
        answers = await asyncio.gather(*(session.run(agent, {question: each}) for each in SCRIPT))
    for asked, (rounds, findings, ended) in zip(SCRIPT, answers, strict=True):
        print(f"{asked} {rounds} of {MAX_ROUNDS} rounds; {ended or 'no rounds are left'}")
        for finding in findings:
            print("   ", finding)


if __name__ == "__main__":
    ax.run(main)
