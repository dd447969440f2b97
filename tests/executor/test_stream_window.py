"""The window of a stream: order, room, failures, without a loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncexec.executor.streams.stream_window import StreamWindow


class Item:
    """An item, by its number."""

    def __init__(self) -> None:
        self.number = -1
        self.is_done = False


def begin(window: StreamWindow[Item], count: int = 1) -> list[Item]:
    """Let items be in flight."""
    items = []
    for _ in range(count):
        window.put(None)
        window.inbox.popleft()
        items.append(Item())
        window.begin(items[-1])
    return items


def take_all(window: StreamWindow[Item]) -> list[int]:
    """The numbers of all results that are ready."""
    taken = []
    while window.has_ready():
        taken.append(window.results.popleft().number)
        window.occupied -= 1
    return taken


def numbers(items: Sequence[Item]) -> list[int]:
    return [item.number for item in items]


@pytest.mark.parametrize(("is_ordered", "expected"), [(True, [0, 1, 2]), (False, [2, 0, 1])])
def test_results_come_in_order_or_as_items_end(is_ordered: bool, expected: list[int]) -> None:
    window = StreamWindow[Item](3, is_ordered=is_ordered)
    first, second, third = begin(window, 3)
    for item in (third, first, second):
        window.end(item)
    assert take_all(window) == expected


def test_an_item_that_is_late_holds_up_those_behind_it() -> None:
    window = StreamWindow[Item](3, is_ordered=True)
    first, second = begin(window, 2)
    window.end(second)
    assert not window.has_ready()
    window.end(first)
    assert window.has_ready(2)
    assert not window.has_ready(3)


def test_results_that_nobody_takes_leave_no_room() -> None:
    window = StreamWindow[Item](2, is_ordered=True)
    for item in begin(window, 2):
        window.end(item)
    assert not window.has_room
    taken = window.results.popleft()
    assert not window.has_room  # as long as somebody looks at the result, which may be put back
    window.put_back(taken)
    assert take_all(window) == [0, 1]
    assert window.has_room


def test_what_is_sent_and_taken_is_counted() -> None:
    window = StreamWindow[Item](4, is_ordered=True)
    first, second = begin(window, 2)
    window.put(None)
    window.end(first)
    window.end(second)
    window.results.popleft()
    window.occupied -= 1
    assert (window.num_sent, window.num_taken, window.occupied) == (3, 1, 2)


def test_a_closed_window_is_over_once_all_results_are_taken() -> None:
    window = StreamWindow[Item](2, is_ordered=False)
    (item,) = begin(window)
    window.is_closed = True
    window.end(item)
    assert window.is_idle
    assert not window.is_over
    take_all(window)
    assert window.is_over


def test_a_failure_drops_what_was_sent_later() -> None:
    window = StreamWindow[Item](4, is_ordered=True)
    first, failed, done, behind = begin(window, 4)
    window.put("not begun")
    window.end(failed)
    window.end(done)
    assert numbers(window.abort(failed)) == [2, 3]
    assert list(window.in_flight) == [first]
    assert not window.inbox
    assert not behind.is_done
    window.end(first)
    assert take_all(window) == [0, 1]
    assert window.is_over


def test_a_failure_of_an_unordered_stream_drops_what_is_in_flight() -> None:
    window = StreamWindow[Item](3, is_ordered=False)
    first, failed, done = begin(window, 3)
    window.end(done)
    window.end(failed)
    assert window.abort(failed) == [first]
    assert take_all(window) == [2, 1]


def test_an_abort_drops_everything_and_what_is_to_begin_again() -> None:
    window = StreamWindow[Item](3, is_ordered=True)
    first, second = begin(window, 2)
    window.end(first)
    window.again.append(second)
    assert window.abort() == [first, second]
    assert not window.again
    assert not window.results
    assert window.is_over


@dataclass
class Model:
    """The same window as one plain list of items, each with its number and its state."""

    size: int
    is_ordered: bool
    items: dict[int, str] = field(default_factory=dict)  # "sent", "begun", "ended", by number
    endings: list[int] = field(default_factory=list)  # the numbers of those that have ended, in that order
    count: int = 0

    def of(self, state: str) -> list[int]:
        return [number for number, each in self.items.items() if each == state]

    def ready(self) -> list[int]:
        """What can be taken, in its order."""
        if not self.is_ordered:
            return [number for number in self.endings if number in self.items]
        found = []
        for number, state in self.items.items():
            if state != "ended":
                break
            found.append(number)
        return found

    def drop(self, failed: int) -> None:
        """What the failure of an item leaves."""
        for number, state in list(self.items.items()):
            is_kept = number <= failed if self.is_ordered else state == "ended"
            if not is_kept or state == "sent":
                del self.items[number]


STEPS = st.lists(st.tuples(st.sampled_from(("send", "begin", "end", "take", "fail")), st.integers(0, 7)), max_size=60)


@given(st.integers(1, 5), st.booleans(), STEPS)
def test_it_does_what_a_plain_list_does(size: int, is_ordered: bool, steps: list[tuple[str, int]]) -> None:
    window, model = StreamWindow[Item](size, is_ordered=is_ordered), Model(size, is_ordered)
    items: dict[int, Item] = {}
    for step, which in steps:
        if step == "send" and window.has_room and not window.is_closed:
            window.put(model.count)
            model.items[model.count] = "sent"
            model.count += 1
        elif step == "begin" and window.inbox:
            number = window.inbox.popleft()
            items[number] = Item()
            window.begin(items[number])
            assert items[number].number == number
            model.items[number] = "begun"
        elif step in ("end", "fail") and window.in_flight:
            begun = model.of("begun")
            number = begun[which % len(begun)]
            window.end(items[number])
            model.items[number] = "ended"
            model.endings.append(number)
            if step == "fail":
                window.abort(items[number])
                model.drop(number)
        elif step == "take" and window.has_ready():
            number = window.results.popleft().number
            window.occupied -= 1
            assert number == model.ready()[0]
            del model.items[number]
        assert numbers(list(window.in_flight)) == model.of("begun")
        assert list(window.inbox) == model.of("sent")
        assert window.has_ready(3) == (len(model.ready()) >= 3)
        assert window.is_over == (window.is_closed and not model.items)
        if not window.is_aborted:
            assert window.has_room == (len(model.items) < size)
