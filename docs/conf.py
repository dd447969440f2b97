"""The Sphinx site: ``make docs`` builds it in ``build/docs``, and warnings are errors."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import asyncexec.hooks  # noqa: E402
import asyncexec.testing  # noqa: E402

asyncexec.Operation.__name__ = "Operation"  # Node is its name inside; autodoc would call it an alias

project = "asyncexec"
author = "The asyncexec authors"
copyright = "the asyncexec authors"  # noqa: A001
html_title = "asyncexec"
html_theme = "furo"
html_copy_source = False
smartquotes = False

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_default_options = {"exclude-members": "model_post_init, model_config, as_tensor, fetched_tensor"}
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
# Names of unions are shown as they are written, not as what they are made of.
autodoc_type_aliases = {
    name: name
    for name in ("Axis", "BranchFunction", "DTypeLike", "Padding", "ShapeLike", "Sizes", "TensorLike", "Values")
}
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
toc_object_entries_show_parents = "hide"


class Names(SphinxDirective):
    """Documents public names, a line each.

    A module stands for its docstring and all its public names.  ``Graph: tensor operation`` shows two members of a
    class, and ``Graph`` alone all of them.
    """

    has_content = True

    def run(self) -> list[nodes.Node]:
        lines = [line for entry in self.content for line in self._entry(entry.strip())]
        return self.parse_text_to_nodes("\n".join(["```{eval-rst}", *lines, "```"]))

    def _entry(self, entry: str) -> list[str]:
        names = asyncexec._PUBLIC.get(entry)
        if names is None:
            name, _, members = entry.partition(":")
            return self._name(name, ", ".join(members.split()))
        about = [f".. automodule:: {entry}", "   :no-index:", ""]
        return about + [line for name in names.split() for line in self._name(name)]

    def _name(self, name: str, members: str = "") -> list[str]:
        value = asyncexec
        for part in name.split("."):
            value = getattr(value, part)
        if not inspect.isclass(value):
            return [f".. autofunction:: asyncexec.{name}", ""]
        kind = "exception" if issubclass(value, BaseException) else "class"
        return [f".. auto{kind}:: asyncexec.{name}", f"   :members: {members}", ""]


def plain_aliases(_app: Sphinx, _what: str, _name: str, _value: object, _options: object, *texts: str | None) -> Any:
    """Signatures with the names of aliases, which autodoc shows as it keeps them where they are in a union."""
    return tuple(text and re.sub(r"TypeAliasForwardRef\('(\w+)'\)", r"\1", text) for text in texts)


def setup(app: Sphinx) -> None:
    app.add_directive("names", Names)
    app.connect("autodoc-process-signature", plain_aliases)
