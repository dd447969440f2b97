"""The files that browsers get: scripts, styles and pieces of HTML, as they are in the package."""

from __future__ import annotations

import importlib.resources


def page_file(name: str) -> str:
    """The text of the file called *name*; it is read from the disk."""
    return importlib.resources.files(__package__).joinpath("files", name).read_text(encoding="utf-8")


def graph_view(heading: str = "", problem: str = "") -> str:
    """The HTML that ``showGraph`` of graph.js fills; *heading* and *problem* are HTML, too."""
    return page_file("graph.html").format(heading=heading, problem=problem)
