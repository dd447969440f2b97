"""Which worker the next item goes to: decided without a loop."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from asyncexec.executor.streams.spread import Spread

WORKERS = ("a", "b", "c")


def spread(workers: list[str], window: int = 6, retries: int = 2) -> Spread:
    return Spread(lambda: workers, window, retries)


def begin(chooser: Spread, losses: int = 0) -> str | None:
    """Where an item goes that waits alone; None if it has to wait."""
    found = chooser.choose([losses])
    if found is None:
        return None
    chooser.begin(found[1], losses)
    return found[1]


def test_items_go_to_the_worker_that_has_the_fewest() -> None:
    chooser = spread(["a", "b", "c"])
    assert [begin(chooser) for _ in range(4)] == ["a", "b", "c", "a"]
    chooser.end("c")
    assert begin(chooser) == "c"


def test_no_worker_has_more_than_its_share_of_the_window() -> None:
    chooser = spread(["a", "b"], window=5)
    assert [begin(chooser) for _ in range(6)] == ["a", "b", "a", "b", "a", "b"]
    assert begin(chooser) is None
    chooser.end("b")
    assert begin(chooser) == "b"


def test_a_slow_worker_gets_fewer_items() -> None:
    chooser = spread(["slow", "fast"], window=4)
    taken = [begin(chooser) for _ in range(4)]
    for _ in range(10):
        chooser.end("fast")
        taken.append(begin(chooser))
    assert taken.count("slow") == 2
    assert taken.count("fast") == 12


def test_a_worker_that_joins_is_used_and_one_that_leaves_is_not() -> None:
    workers = ["a"]
    chooser = spread(workers, window=4)
    assert [begin(chooser) for _ in range(3)] == ["a", "a", "a"]
    workers.append("b")
    assert [begin(chooser) for _ in range(3)] == ["b", "b", None]
    workers.remove("a")
    assert [begin(chooser) for _ in range(2)] == ["b", "b"]


def test_a_last_attempt_waits_for_an_idle_worker_and_others_go_elsewhere() -> None:
    chooser = spread(["a", "b"], window=8)
    assert [begin(chooser) for _ in range(3)] == ["a", "b", "a"]
    assert chooser.choose([2, 0]) == (1, "a")  # b, which has the fewest, is kept for the first
    chooser.end("b")
    assert chooser.choose([2, 0]) == (0, "b")
    chooser.begin("b", 2)
    assert chooser.choose([0]) == (0, "a")
    assert chooser.choose([2]) is None
    chooser.end("b")
    assert chooser.choose([2]) == (0, "b")


def test_without_retries_no_item_is_alone() -> None:
    chooser = spread(["a"], window=3, retries=0)
    assert [begin(chooser) for _ in range(4)] == ["a", "a", "a", None]


@given(
    window=st.integers(1, 9),
    retries=st.integers(0, 3),
    poison=st.sets(st.integers(0, 29), max_size=3),
    draw=st.randoms(use_true_random=False),
    num_items=st.integers(1, 30),
)
def test_every_item_ends_once_and_only_those_fail_that_end_their_worker(
    window: int, retries: int, poison: set[int], draw: object, num_items: int
) -> None:
    """A simulation: the window, workers that poisonous items end, and that come back at once or later."""
    random = draw
    up = set(WORKERS)
    chooser = Spread(lambda: sorted(up) or list(WORKERS), window, retries)
    running: dict[int, str] = {}
    losses = dict.fromkeys(range(num_items), 0)
    waiting: list[int] = []
    ended: dict[int, bool] = {}
    drawn = 0

    def lose(worker: str) -> None:
        up.discard(worker)
        for item in [each for each, where in running.items() if where == worker]:
            del running[item]
            chooser.end(worker)
            losses[item] += 1
            if losses[item] > retries:
                ended[item] = False
            else:
                waiting.append(item)

    while len(ended) < num_items:
        has_new = drawn < num_items and len(running) + len(waiting) < window
        found = chooser.choose([*(losses[item] for item in waiting), *([0] if has_new else [])])
        if found is not None:
            index, worker = found
            item = drawn if index == len(waiting) else waiting.pop(index)
            drawn += item == drawn
            assert item not in running
            chooser.begin(worker, losses[item])
            running[item] = worker
            company = [each for each, where in running.items() if where == worker]
            assert len(company) == 1 or not any(0 < losses[each] == retries for each in company)
        if running and (found is None or random.random() < 0.5):  # type: ignore[attr-defined]
            item = random.choice(sorted(running))  # type: ignore[attr-defined]
            worker = running[item]
            if item in poison and worker in up:
                lose(worker)
            elif item not in poison:
                del running[item]
                chooser.end(worker)
                ended[item] = True
            else:
                up.add(worker)
        else:
            assert running or found is not None  # something always goes on
        if random.random() < 0.3:  # type: ignore[attr-defined]
            up.add(random.choice(WORKERS))  # type: ignore[attr-defined]
    failed = {item for item, is_well in ended.items() if not is_well}
    assert poison & set(range(num_items)) <= failed
    if retries:
        assert failed <= poison
