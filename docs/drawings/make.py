"""Writes the drawings of the documentation: ``python docs/drawings/make.py``.

Each drawing stands on a light card of its own, so it can be read on dark and on light pages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from html import escape
from pathlib import Path

FOLDER = Path(__file__).parent
INK, PALE, CARD = "#1f2937", "#9ca3af", "#f8fafc"
FILLS = {
    "async": "#bfdbfe",
    "cheap": "#d9f99d",
    "expensive": "#fed7aa",
    "feed": "#e9d5ff",
    "off": "#f1f5f9",
    "": "#ffffff",
}


class Drawing:
    """Boxes, arrows and words, collected as SVG."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._size = width, height
        self._title = title
        self._shapes: list[str] = []

    def box(self, x: int, y: int, width: int, words: str, kind: str = "", height: int = 30) -> None:
        """A box with its upper left corner at (x, y); what does not run is dashed and pale."""
        is_off = kind == "off"
        stroke = f'stroke="{PALE if is_off else INK}"' + (' stroke-dasharray="4 3"' if is_off else "")
        self._shapes.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="5" fill="{FILLS[kind]}" {stroke}/>'
        )
        self.words(x + width // 2, y + height // 2 + 5, words, "middle", PALE if is_off else INK)

    def words(self, x: int, y: int, words: str, anchor: str = "start", color: str = INK) -> None:
        self._shapes.append(f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{color}">{escape(words)}</text>')

    def arrow(self, *points: tuple[int, int], is_off: bool = False) -> None:
        path = " ".join(f"{x},{y}" for x, y in points)
        color, head = (PALE, "off") if is_off else (INK, "on")
        dashes = ' stroke-dasharray="4 3"' if is_off else ""
        self._shapes.append(
            f'<polyline points="{path}" fill="none" stroke="{color}"{dashes} marker-end="url(#{head})"/>'
        )

    def line(self, *points: tuple[int, int]) -> None:
        path = " ".join(f"{x},{y}" for x, y in points)
        self._shapes.append(f'<polyline points="{path}" fill="none" stroke="{PALE}"/>')

    def svg(self) -> str:
        w, h = self._size
        heads = "".join(
            f'<marker id="{name}" markerWidth="9" markerHeight="8" refX="8" refY="4" orient="auto">'
            f'<path d="M0,0 L9,4 L0,8 z" fill="{color}"/></marker>'
            for name, color in (("on", INK), ("off", PALE))
        )
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w} {h}" width="{w}" height="{h}">',
            '<g font-family="system-ui, sans-serif" font-size="13">',
            f"<title>{escape(self._title)}</title>",
            f"<defs>{heads}</defs>",
            f'<rect width="{w}" height="{h}" rx="8" fill="{CARD}" stroke="{PALE}"/>',
            *self._shapes,
            "</g>",
            "</svg>",
        ]
        return "\n".join(lines) + "\n"


def graph() -> Drawing:
    """What a fetch needs runs, and nothing else."""
    d = Drawing(640, 250, "A graph; fetching offer runs only the nodes that offer needs")
    d.box(20, 105, 100, "article", "feed")
    d.box(180, 25, 110, "stock", "off")
    d.box(180, 105, 110, "price", "async")
    d.box(180, 185, 110, "rating", "async")
    d.box(340, 105, 80, "* 1.2", "cheap")
    d.box(340, 185, 80, "/ 10", "cheap")
    d.box(470, 145, 110, "offer: +", "cheap")
    d.box(470, 25, 110, "stock > 0", "off")
    d.arrow((120, 112), (150, 112), (150, 40), (180, 40), is_off=True)
    d.arrow((120, 120), (180, 120))
    d.arrow((120, 128), (150, 128), (150, 200), (180, 200))
    d.arrow((290, 40), (470, 40), is_off=True)
    d.arrow((290, 120), (340, 120))
    d.arrow((290, 200), (340, 200))
    d.arrow((420, 120), (445, 120), (445, 153), (470, 153))
    d.arrow((420, 200), (445, 200), (445, 167), (470, 167))
    d.arrow((580, 160), (620, 160))
    d.words(20, 95, "fed")
    d.words(525, 193, "fetched", "middle")
    return d


def step() -> Drawing:
    """Where the nodes of a step run."""
    d = Drawing(640, 220, "One step: cheap nodes in the event loop, awaits that overlap, an expensive node on a thread")
    for y, name in ((40, "event loop"), (90, "awaited"), (120, "awaited"), (170, "worker thread")):
        d.words(20, y + 18, name)
    for y in (78, 158):
        d.line((20, y), (620, y))
    d.box(130, 40, 40, "", "cheap", 26)
    d.box(320, 40, 50, "", "cheap", 26)
    d.box(540, 40, 50, "", "cheap", 26)
    d.box(175, 90, 110, "price", "async", 26)
    d.box(175, 120, 145, "rating", "async", 26)
    d.box(375, 170, 160, "score", "expensive", 26)
    d.arrow((320, 133), (330, 133), (330, 68))
    d.arrow((365, 66), (365, 183), (375, 183))
    d.arrow((535, 183), (550, 183), (550, 68))
    d.words(130, 26, "time")
    d.arrow((165, 22), (600, 22))
    return d


def branch() -> Drawing:
    """A branch: one side runs, the other is dead."""
    d = Drawing(640, 170, "cond: the predicate decides; the nodes of the other branch do not run")
    d.box(20, 70, 100, "stock > 0", "cheap")
    d.box(180, 70, 90, "Switch", "cheap")
    d.box(330, 25, 130, "price", "async")
    d.box(330, 115, 130, "ask_supplier", "off")
    d.box(520, 70, 90, "Merge", "cheap")
    d.arrow((120, 85), (180, 85))
    d.arrow((270, 78), (300, 78), (300, 40), (330, 40))
    d.arrow((270, 92), (300, 92), (300, 130), (330, 130), is_off=True)
    d.arrow((460, 40), (490, 40), (490, 78), (520, 78))
    d.arrow((460, 130), (490, 130), (490, 92), (520, 92), is_off=True)
    d.words(275, 58, "true", "end")
    d.words(275, 120, "false", "end", PALE)
    return d


def loop() -> Drawing:
    """Iterations overlap; what one needs from the one before stays in order."""
    d = Drawing(640, 190, "A loop with parallel_iterations=3: calls overlap, sums stay in order")
    for i in range(4):
        y = 25 + 38 * i
        start = 120 + (0, 16, 32, 232)[i]
        d.words(20, y + 19, f"iteration {i}")
        d.box(start, y, 170 - 20 * (i % 2), "fetch", "async", 28)
        d.box((320, 360, 400, 520)[i], y, 32, "+", "cheap", 28)
        end = start + 170 - 20 * (i % 2)
        d.arrow((end, y + 14), ((320, 360, 400, 520)[i], y + 14))
    d.arrow((336, 53), (336, 77), (360, 77))
    d.arrow((376, 91), (376, 115), (400, 115))
    d.arrow((432, 115), (536, 115), (536, 139))
    return d


def devices() -> Drawing:
    """A graph that is cut at the border of two devices."""
    d = Drawing(640, 190, "Two devices: each runs its part of the graph, and values cross by _Send and _Recv")
    d.box(20, 40, 280, "", "", 130)
    d.box(340, 40, 280, "", "", 130)
    d.words(20, 30, "/cpu:0")
    d.words(620, 30, "/cpu:1", "end")
    d.box(35, 90, 60, "x", "feed")
    d.box(115, 90, 70, "square", "cheap")
    d.box(205, 90, 70, "_Send")
    d.box(360, 90, 70, "_Recv")
    d.box(450, 90, 70, "sum", "cheap")
    d.box(540, 90, 60, "fetch", "feed")
    for x, end in ((95, 115), (185, 205), (430, 450), (520, 540)):
        d.arrow((x, 105), (end, 105))
    d.arrow((275, 105), (360, 105))
    d.words(320, 30, "rendezvous", "middle")
    d.line((320, 36), (320, 100))
    return d


def stream() -> Drawing:
    """A window over the items of a stream."""
    d = Drawing(640, 180, "A stream with window=3: three items are in flight, the source waits")
    names = ["item 6", "item 5", "item 4", "item 3", "item 2", "item 1"]
    for i, name in enumerate(names):
        x = 20 + 103 * i
        if i not in (2, 3, 4):
            d.box(x, 85, 90, name, "off" if i == 0 else "feed")
    d.box(220, 62, 310, "", "", 76)
    for i, name in ((2, "item 4"), (3, "item 3"), (4, "item 2")):
        d.box(20 + 103 * i + 4, 85, 86, name, "cheap" if i == 4 else "async")
    d.words(371, 50, "window: items in flight", "middle")
    d.words(65, 75, "not drawn yet", "middle", PALE)
    d.words(168, 75, "waits", "middle")
    d.words(580, 75, "result taken", "middle")
    d.words(480, 158, "done, waits", "middle")
    d.arrow((213, 100), (225, 100))
    return d


def stages() -> Drawing:
    """From the graph that you wrote to a step."""
    d = Drawing(640, 200, "The first run of a signature prepares it; every run executes it")
    for i, name in enumerate(("place", "prune", "lower", "partition", "compile")):
        x = 110 + 105 * i
        d.box(x, 40, 85, name)
        d.arrow((x - 20, 55), (x, 55))
    d.box(15, 40, 75, "graph", "feed")
    d.words(20, 28, "first run of a signature")
    d.box(520, 120, 95, "executor", "cheap", 70)
    d.arrow((572, 70), (572, 120))
    d.box(15, 120, 75, "feeds", "feed")
    d.arrow((90, 135), (520, 135))
    d.words(300, 128, "every run", "middle")
    d.box(15, 160, 75, "values", "feed")
    d.arrow((520, 175), (90, 175))
    return d


DRAWINGS: tuple[Callable[[], Drawing], ...] = (graph, step, branch, loop, devices, stream, stages)


def drawings() -> Iterable[tuple[Path, str]]:
    """The files and what is in them."""
    return [(FOLDER / f"{draw.__name__}.svg", draw().svg()) for draw in DRAWINGS]


if __name__ == "__main__":
    for path, text in drawings():
        path.write_text(text, encoding="utf-8")
