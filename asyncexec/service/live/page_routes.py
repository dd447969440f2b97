"""The files of the live page, which anybody may have: they tell nothing of the models."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from typing import Final

import anyio.to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from asyncexec.page.page_files import graph_view, page_file

# The picture of a graph sets the sizes of its canvases by scripts, which is no inline style.
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
STRICT: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_TYPES: Final = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
_FILES: Final = (
    "base.css",
    "graph.css",
    "live.css",
    "cytoscape.min.js",
    "layout.js",
    "graph.js",
    "live.js",
    "live_parts.js",
    "live_run.js",
    "icon.svg",
)
_NUM_ETAG: Final = 32


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    compressed: bytes
    media_type: str
    etag: str


class PageFiles:
    """The page and its files, read when the first is asked for."""

    def __init__(self) -> None:
        self._files: dict[str, _File] = {}

    async def page(self, request: Request) -> Response:
        """The page itself."""
        return await self._send(request, "live.html")

    async def file(self, request: Request) -> Response:
        """A script, a style, or a picture."""
        return await self._send(request, request.path_params["name"])

    async def _send(self, request: Request, name: str) -> Response:
        if not self._files:
            self._files = await anyio.to_thread.run_sync(_read)
        file = self._files.get(name)
        if file is None:
            raise HTTPException(404, "Not Found")
        headers = {**STRICT, "ETag": file.etag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        known = request.headers.get("if-none-match", "")
        if file.etag in (each.strip().removeprefix("W/") for each in known.split(",")):
            return Response(status_code=304, headers=headers)
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(file.compressed, 200, {**headers, "Content-Encoding": "gzip"}, file.media_type)
        return Response(file.content, 200, headers, file.media_type)


def _read() -> dict[str, _File]:
    page = page_file("live.html").replace("<!-- the view of a graph -->", graph_view('<p class="facts"></p>'))
    return {"live.html": _file("live.html", page), **{name: _file(name, page_file(name)) for name in _FILES}}


def _file(name: str, text: str) -> _File:
    content = text.encode()
    etag = f'"{hashlib.sha256(content).hexdigest()[:_NUM_ETAG]}"'
    return _File(content, gzip.compress(content, 9, mtime=0), _TYPES[name.rpartition(".")[2]], etag)
