"""The page of ``inspect --html`` as a user meets it: in a headless Chromium, by mouse and by keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import asyncexec as ax
from asyncexec.cli.graph_page import graph_page
from asyncexec.cli.graph_summary import summarize
from asyncexec.page.graph_nodes import ShownNode, Source, nodes_of_graph
from tests.chromium import CHROMIUM, HOW_TO_GET_IT, Browser, chromium

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason=HOW_TO_GET_IT)]
HOSTILE = "</script><script>window.isHacked=1</script><img src=x onerror=window.isHacked=1>"
LARGE = 100_000


@pytest.fixture(scope="module")
def open_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@pytest.fixture
def browser(open_browser: Browser) -> Iterator[Browser]:
    """A browser that asks for nothing but the page, and that complains of nothing."""
    yield open_browser
    assert open_browser.complaints == []
    assert [address for address in open_browser.requests if not address.startswith(("file:", "data:"))] == []
    assert len(open_browser.requests) == 1


def write_page(folder: Path, nodes: list[ShownNode]) -> Path:
    path = folder / "graph.html"
    path.write_text(graph_page("graph", nodes, summarize("graph", nodes, [])), encoding="utf-8")
    return path


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """29 nodes: two that belong to nothing, two layers of 4 on a device each, and a loop of 19."""
    with ax.Graph() as graph:
        h = ax.placeholder(ax.float32, [None, 3], name="x")
        for i in range(2):
            with ax.name_scope(f"layer{i}"), ax.device(f"/cpu:{i}"):
                h = ax.maximum(ax.add(h, 1.0), 0.0, name="relu")
        ax.while_loop(lambda i, t: i < 10, lambda i, t: (i + 1, t * 2.0), [ax.constant(0, name="zero"), h])
    return write_page(tmp_path, nodes_of_graph(graph))


def chain(size: int, scope: int) -> list[ShownNode]:
    """A chain of *size* nodes, in name scopes of *scope* nodes."""
    attrs: dict[str, Any] = {"T": 1}
    return [ShownNode(f"s{i // scope}/n{i}", "Neg", "", [Source(i - 1, 0)] if i else [], attrs) for i in range(size)]


def label_of(browser: Browser, item: str = "document.activeElement") -> Any:
    return browser.evaluate(f"{item}.getAttribute('aria-label')")


def shown(browser: Browser) -> str:
    return str(browser.evaluate("document.getElementById('shown').textContent"))


def details(browser: Browser) -> str:
    return str(browser.evaluate("document.getElementById('details').textContent"))


def focus_tree(browser: Browser) -> None:
    browser.evaluate("document.querySelector('#tree [tabindex=\"0\"]').focus()")


def accessible(browser: Browser, role: str) -> list[dict[str, Any]]:
    """What a screen reader is told of the elements with *role*: names and properties."""
    nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
    return [
        {"name": node.get("name", {}).get("value"), **{p["name"]: p["value"].get("value") for p in node["properties"]}}
        for node in nodes
        if node.get("role", {}).get("value") == role and not node["ignored"]
    ]


def test_the_picture_is_drawn(browser: Browser, small: Path) -> None:
    browser.show(small)
    assert shown(browser).startswith("29 of 29 nodes")
    colors = browser.evaluate(
        """(() => {
          const found = new Set();
          for (const canvas of document.querySelectorAll("#picture canvas")) {
            const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
            for (let i = 0; i < pixels.length; i += 4) if (pixels[i + 3]) found.add(pixels.slice(i, i + 3).join());
          }
          return found.size;
        })()"""
    )
    assert colors > 20


def test_a_screen_reader_is_told_of_boxes_and_nodes(browser: Browser, small: Path) -> None:
    browser.show(small)
    items = {item["name"]: item for item in accessible(browser, "treeitem")}
    assert {"device /device:CPU:0, 4 nodes", "loop while, 19 nodes", "relu, Maximum", "x, Placeholder"} <= items.keys()
    assert items["loop while, 19 nodes"]["expanded"] is True
    assert items["loop while, 19 nodes"]["level"] == 2
    assert [item["name"] for item in accessible(browser, "tree")] == ["Boxes and nodes of the graph"]
    (picture,) = accessible(browser, "image")
    assert picture["name"].startswith("Picture of the graph")
    assert picture["focusable"] is True


def test_the_keyboard_moves_folds_and_shows_details(browser: Browser, small: Path) -> None:
    browser.show(small)
    focus_tree(browser)
    browser.press("Home")
    assert label_of(browser).startswith("device (any)")
    browser.press("ArrowDown")
    assert label_of(browser) == "x, Placeholder"
    browser.press("Enter")
    assert "float32" in details(browser)
    assert "[?,3]" in details(browser)
    assert "layer0/AddV2" in details(browser)  # which takes it
    browser.press("ArrowLeft", "ArrowLeft")
    assert label_of(browser).startswith("device (any)")
    assert browser.evaluate("document.activeElement.getAttribute('aria-expanded')") == "false"
    assert not shown(browser).startswith("29 of")
    browser.press("ArrowDown")
    assert label_of(browser).startswith("device /device:CPU:0")
    browser.press("ArrowUp", "ArrowRight", "ArrowRight")
    assert label_of(browser) == "x, Placeholder"
    assert shown(browser).startswith("29 of")
    browser.press("End")
    assert label_of(browser) == "relu, Maximum"
    assert browser.evaluate("document.querySelectorAll('#tree [tabindex=\"0\"]').length") == 1
    assert browser.evaluate("getComputedStyle(document.activeElement.firstChild).outlineStyle") == "solid"


def test_the_keyboard_moves_the_picture(browser: Browser, small: Path) -> None:
    browser.show(small)

    def pixels() -> Any:
        """The picture when it has come to rest: it is drawn roughly while it moves."""
        return browser.evaluate(
            """(async () => {
              const take = () => [...document.querySelectorAll("#picture canvas")].map((c) => c.toDataURL()).join();
              for (let last = null, same = 0; ; ) {
                await new Promise((done) => setTimeout(() => requestAnimationFrame(done), 50));
                const taken = take();
                same = taken === last ? same + 1 : 0;
                if (same === 5) return taken;
                last = taken;
              }
            })()"""
        )

    browser.evaluate("document.getElementById('picture').focus()")
    seen = [pixels()]
    for key in ("+", "ArrowLeft", "0"):
        browser.press(key)
        seen.append(pixels())
    assert seen[0] != seen[1] != seen[2]
    assert seen[3] == seen[0]


def test_a_search_finds_by_name_and_op_and_shows_the_node(browser: Browser, tmp_path: Path) -> None:
    browser.show(write_page(tmp_path, chain(3_000, 1_000)))
    assert shown(browser).startswith("0 of 3,000")
    browser.press("/")
    assert browser.evaluate("document.activeElement.id") == "search"
    browser.press(*"n1234", "Enter")
    assert browser.evaluate("document.querySelectorAll('#found li').length") == 1
    assert details(browser).startswith("s1/n1234")
    assert shown(browser).startswith("200 of 3,000")
    assert label_of(browser, "document.querySelector('#tree [aria-selected=\"true\"]')") == "n1234, Neg"
    browser.press("Escape", *"neg")
    assert browser.evaluate("document.getElementById('found').lastChild.textContent") == "... and 2,950 more"


def test_links_lead_along_the_edges(browser: Browser, small: Path) -> None:
    browser.show(small)
    focus_tree(browser)
    browser.press("Home", "ArrowDown", "Enter")
    browser.evaluate("document.querySelector('#details li button').click()")
    assert details(browser).startswith("layer0/AddV2")
    assert label_of(browser) == "AddV2, AddV2"


def test_a_click_in_the_picture_shows_details_and_unfolds(browser: Browser, tmp_path: Path) -> None:
    browser.show(write_page(tmp_path, [*chain(4, 2), ShownNode("s0/t/deep", "Neg", "", [], {})]))
    browser.evaluate("document.getElementById('fold').click()")
    assert shown(browser).startswith("0 of 5")
    # Two boxes, one above the other, in the middle of the picture.
    x, y, width, height = browser.evaluate(
        "(({x, y, width, height}) => [x, y, width, height])(document.getElementById('picture').getBoundingClientRect())"
    )
    browser.click(x + width / 2, y + height / 2 - 70)
    assert details(browser).startswith("s0")
    assert shown(browser).startswith("3 of 5")


def test_all_can_be_folded_and_unfolded(browser: Browser, small: Path) -> None:
    browser.show(small)
    browser.evaluate("document.getElementById('fold').click()")
    assert shown(browser).startswith("0 of 29")
    assert [item["expanded"] for item in accessible(browser, "treeitem")] == [False] * 3
    browser.evaluate("document.getElementById('unfold').click()")
    assert shown(browser).startswith("29 of 29")


def test_names_of_strangers_stay_text(browser: Browser, tmp_path: Path) -> None:
    nodes = [ShownNode(f"{HOSTILE}{i}", HOSTILE, HOSTILE, [], {HOSTILE: HOSTILE}) for i in range(2)]
    browser.show(write_page(tmp_path, nodes))
    focus_tree(browser)
    browser.press("Home", "ArrowRight", "Enter")
    assert HOSTILE in details(browser)
    assert browser.evaluate("window.isHacked") is None
    assert browser.evaluate("document.querySelectorAll('img').length") == 0


def test_it_is_readable_in_the_dark(browser: Browser, small: Path) -> None:
    browser.show(small, is_dark=True)
    color = browser.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    assert max(color) < 60
    text = browser.evaluate("getComputedStyle(document.body).color.match(/\\d+/g).map(Number)")
    assert min(text) > 200


@pytest.mark.deep
@pytest.mark.parametrize("scope", [50, LARGE])
def test_a_large_graph_is_folded_and_can_be_searched(browser: Browser, tmp_path: Path, scope: int) -> None:
    browser.show(write_page(tmp_path, chain(LARGE, scope)))
    assert shown(browser).startswith("0 of 100,000")
    assert browser.evaluate("document.getElementById('unfold').disabled") is True
    browser.press("/", *"n99999", "Enter")
    assert details(browser).startswith(f"s{99_999 // scope}/n99999")


def test_two_thousand_nodes_are_shown_at_once(browser: Browser, tmp_path: Path) -> None:
    browser.show(write_page(tmp_path, chain(2_000, 100)))
    assert shown(browser).startswith("2,000 of 2,000")


def test_an_empty_graph_has_a_page(browser: Browser, tmp_path: Path) -> None:
    browser.show(write_page(tmp_path, []))
    assert shown(browser).startswith("0 of 0")
