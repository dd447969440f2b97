"""Small pieces of HTML and SVG for notebooks.  Every text is escaped: names are those of strangers.

Colours are those of the notebook (``currentColor``), so that a picture is readable on light and on dark pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Final

STYLE: Final = "font:12px/1.4 system-ui,sans-serif"
ACCENT: Final = "#3b78e0"
LONGEST_LABEL: Final = 24


def shortened(text: str, most: int = LONGEST_LABEL) -> str:
    """The end of *text*, which tells more than its beginning, if all of it is too long."""
    return text if len(text) <= most else "…" + text[-(most - 1) :]


def card(title: str, facts: Mapping[str, object], *pictures: str) -> str:
    """A block with a title, facts by their names, and pictures, which are HTML."""
    rows = "".join(
        f'<tr><td style="text-align:left">{escape(name)}</td><td style="text-align:left">{escape(str(value))}</td></tr>'
        for name, value in facts.items()
    )
    table = f"<table>{rows}</table>" if rows else ""
    boxes = "".join(f'<div style="overflow:auto;max-height:36rem">{picture}</div>' for picture in pictures)
    return f'<div style="{STYLE}"><strong>{escape(title)}</strong>{table}{boxes}</div>'


def svg(width: float, height: float, label: str, parts: Iterable[str]) -> str:
    """A picture of that size, which shrinks to the width that there is; *label* is for who cannot see it."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(label)}" width="{width:g}" '
        f'height="{height:g}" viewBox="0 0 {width:g} {height:g}" style="max-width:100%;height:auto" '
        f'font-family="system-ui,sans-serif" font-size="11" fill="currentColor">{"".join(parts)}</svg>'
    )


def rect(x: float, y: float, width: float, height: float, title: str, style: str) -> str:
    """A rectangle that tells *title* under the mouse; *style* are more attributes."""
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4" {style}>'
        f"<title>{escape(title)}</title></rect>"
    )


def text(x: float, y: float, words: str, style: str = 'text-anchor="middle"') -> str:
    """*words* with their base line at *x*, *y*; *style* are more attributes."""
    return f'<text x="{x:g}" y="{y:g}" {style}>{escape(words)}</text>'
