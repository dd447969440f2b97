"""The live page as a user meets it: in a headless Chromium, by mouse and by keyboard, beside a service that works."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
import uvicorn
from anyio.from_thread import BlockingPortal, start_blocking_portal
from starlette.applications import Starlette
from starlette.routing import Mount

import asyncexec as ax
from asyncexec.cli.serve_demo.graphs import digits
from asyncexec.service.app import create_app
from asyncexec.service.models.files import ModelSource
from asyncexec.service.models.model import Model
from asyncexec.service.models.repository import ModelRepository
from asyncexec.service.requests import InferRequest, InferTensor
from asyncexec.service.server import serving
from tests.chromium import CHROMIUM, HOW_TO_GET_IT, Browser, chromium

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason=HOW_TO_GET_IT)]
HOSTILE = "<img src=x onerror=window.isHacked=1>"
API = ax.Limiter(2, name=f"api {HOSTILE}")


class Gate:
    """What the calls of the model "waiting" wait for."""

    opened: asyncio.Event


@ax.op(limiter=API)
async def wait(x: float) -> float:
    await Gate.opened.wait()
    return x


@ax.op
async def fail(x: float) -> float:
    raise LookupError(HOSTILE)


def models() -> dict[str, ax.Graph | ModelSource]:
    with ax.Graph() as waiting:
        ax.map_fn(wait, ax.placeholder(ax.float64, [None], name="x"), name="each", parallel_iterations=10)
    with ax.Graph() as failing:
        fail(ax.placeholder(ax.float64, [], name="x"), name="y")
    with ax.Graph() as texts:
        ax.identity(ax.placeholder(ax.string, [None], name="text"), name="same")
    return {"digits": digits(), "waiting": waiting, HOSTILE: failing, "texts": texts}


@pytest.fixture
def portal() -> Iterator[BlockingPortal]:
    with start_blocking_portal() as found:
        yield found


class Service:
    """A service in a loop of its own."""

    def __init__(self, portal: BlockingPortal, repository: ModelRepository, url: str) -> None:
        self.portal = portal
        self.repository = repository
        self.url = url

    def address(self, model: str = "digits", tab: str = "now") -> str:
        return f"{self.url}#{quote(json.dumps([model, '1'], separators=(',', ':')), safe='')}&{tab}"

    def begin(self, model: str, value: Any) -> None:
        """Call *model*, and do not wait for it."""
        found: Model = self.repository.model(model)
        request = InferRequest(model, {"x": InferTensor("FP64", np.asarray(value, np.float64))})

        async def call() -> None:
            with contextlib.suppress(ax.errors.OpError):
                await found.infer(request)

        self.portal.start_task_soon(call)

    def open_gate(self) -> None:
        self.portal.call(Gate.opened.set)


@contextlib.contextmanager
def served(portal: BlockingPortal, **options: Any) -> Iterator[Service]:
    Gate.opened = portal.call(asyncio.Event)
    repository = ModelRepository(sources=models())
    service = serving(repository, http_port=0, grpc_port=None, drain_s=1, **options)
    with portal.wrap_async_context_manager(service) as ports:
        try:
            yield Service(portal, repository, f"http://127.0.0.1:{ports.http}/")
        finally:
            portal.call(Gate.opened.set)


@pytest.fixture(scope="module")
def open_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@pytest.fixture
def service(portal: BlockingPortal) -> Iterator[Service]:
    with served(portal) as found:
        yield found


@pytest.fixture
def browser(open_browser: Browser, service: Service) -> Iterator[Browser]:
    """A browser that asks for nothing of other hosts, and that complains of nothing."""
    yield open_browser
    assert open_browser.complaints == []
    assert [address for address in open_browser.requests if not address.startswith(service.url)] == []
    open_browser.call("Page.navigate", url="about:blank")  # so that it does not look while the service ends


def text(browser: Browser, selector: str) -> str:
    return str(browser.evaluate(f"document.querySelector({json.dumps(selector)}).innerText"))


def seen(browser: Browser, selector: str, words: str) -> None:
    """Wait until *words* stand in what *selector* finds."""
    browser.wait_until(f"document.querySelector({json.dumps(selector)})?.innerText.includes({json.dumps(words)})")


def next_snapshots(browser: Browser, count: int = 2) -> None:
    have = browser.evaluate("Number(document.documentElement.dataset.seen)")
    browser.wait_until(f"Number(document.documentElement.dataset.seen) >= {have + count}")


def focused(browser: Browser) -> str:
    return str(browser.evaluate("document.activeElement.innerText || document.activeElement.id"))


def test_models_and_what_they_did_are_shown(browser: Browser, service: Service) -> None:
    browser.open(service.address())
    seen(browser, "#connection", "live")
    names = browser.evaluate("[...document.querySelectorAll('#models tbody th button')].map((each) => each.innerText)")
    assert names == ["digits", "waiting", HOSTILE, "texts"]
    assert text(browser, "#now") == "Nothing at this moment."
    assert text(browser, "#failures") == "None."
    assert text(browser, "#chosen-title") == "digits version 1"
    for _ in range(3):
        service.begin(HOSTILE, 1.0)
    seen(browser, "#models tbody tr:nth-child(3) td:last-child", "3")
    assert browser.evaluate("document.querySelectorAll('#failures li').length") == 3


def test_what_runs_is_told_with_its_iterations_and_waits(browser: Browser, service: Service) -> None:
    browser.open(service.address("waiting", "graph"))
    service.begin("waiting", [1, 2, 3, 4, 5])
    seen(browser, "#now", "each 2-4")
    told = text(browser, "#now")
    assert "each/wait" in told
    assert "each 0-1" in told
    assert f"waits for limiter api {HOSTILE}" in told
    assert f"waits for limiter api {HOSTILE}\n3" in text(browser, "#waits")
    browser.wait_until("document.getElementById('picture')?._cyreg?.cy.nodes('.running').length === 1")
    marked = browser.evaluate("document.getElementById('picture')._cyreg.cy.nodes('.running').data('running')")
    assert marked.endswith("5 under way")
    browser.evaluate("document.querySelector('#now button').click()")
    seen(browser, "#details h2", "each/wait")
    assert "test_page_in_chromium.py:" in text(browser, "#details")
    service.open_gate()
    seen(browser, "#now", "Nothing at this moment.")
    browser.wait_until("document.getElementById('picture')._cyreg.cy.nodes('.running').length === 0")


def test_the_digits_are_run_and_a_timeline_is_shown(browser: Browser, service: Service) -> None:
    browser.open(service.address("digits", "run"))
    seen(browser, "#panel-run", "Run")
    browser.evaluate("document.querySelector('[aria-label=\"sample 2\"]').click()")
    browser.evaluate("document.querySelector('form.run button[type=submit]').click()")
    seen(browser, "form.run .status", "done")
    assert "class 8" in text(browser, "form.run .top-classes li")  # the second picture
    assert browser.evaluate("document.querySelectorAll('.timeline rect').length") > 10
    seen(browser, ".timeline", "Timeline")
    browser.evaluate("document.querySelector('form.run input[type=checkbox]').click()")
    browser.evaluate("document.querySelector('form.run button[type=submit]').click()")
    browser.wait_until("!document.querySelector('form.run button[type=submit]').disabled")
    assert browser.evaluate("document.querySelectorAll('.timeline rect').length") == 0
    assert browser.requests[-1].endswith("/v2/models/digits/versions/1/infer")


def test_a_picture_is_drawn_by_pointer_and_by_keyboard(browser: Browser, service: Service) -> None:
    browser.open(service.address("digits", "run"))
    browser.wait_until("document.querySelector('canvas.board')")
    browser.evaluate("[...document.querySelectorAll('.paint button')].at(-1).click()")
    values = "JSON.parse(document.querySelector('form.run textarea').value).flat(9)"
    assert browser.evaluate(f"{values}.length") == 64
    assert browser.evaluate(f"Math.max(...{values})") == 0
    browser.evaluate("document.querySelector('canvas.board').scrollIntoView({block: 'center'})")
    box = browser.evaluate(
        "(({x, y, width}) => [x, y, width])(document.querySelector('canvas.board').getBoundingClientRect())"
    )
    browser.click(box[0] + box[2] * 2.5 / 8, box[1] + box[2] * 1.5 / 8)
    assert browser.evaluate(f"{values}[1 * 8 + 2]") == 1
    browser.evaluate("document.querySelector('canvas.board').focus()")
    browser.press("ArrowRight", "ArrowRight", "ArrowDown", "Space")
    assert browser.evaluate(f"{values}[5 * 8 + 6]") == 1


def choose_file(browser: Browser, path: Path) -> None:
    document = browser.call("DOM.getDocument")["root"]["nodeId"]
    node = browser.call("DOM.querySelector", nodeId=document, selector="form.run input[type=file]")["nodeId"]
    browser.call("DOM.setFileInputFiles", files=[str(path)], nodeId=node)


def test_a_picture_or_json_comes_from_a_file(browser: Browser, service: Service, tmp_path: Path) -> None:
    browser.open(service.address("digits", "run"))
    browser.wait_until("document.querySelector('canvas.board')")
    browser.call("DOM.enable")
    values = "JSON.parse(document.querySelector('form.run textarea').value).flat(9)"
    (tmp_path / "zeros.json").write_text(json.dumps(np.zeros((1, 8, 8, 1)).tolist()))
    choose_file(browser, tmp_path / "zeros.json")
    browser.wait_until(f"Math.max(...{values}) === 0")
    (tmp_path / "broken.json").write_text("{")
    choose_file(browser, tmp_path / "broken.json")
    seen(browser, "form.run [role=alert]", "broken.json cannot be read")
    png = browser.evaluate(
        "(() => { const c = document.createElement('canvas'); c.width = c.height = 16; const x = c.getContext('2d');"
        " x.fillStyle = '#fff'; x.fillRect(0, 0, 16, 16); return c.toDataURL('image/png'); })()"
    )
    (tmp_path / "white.png").write_bytes(base64.b64decode(png.partition(",")[2]))
    choose_file(browser, tmp_path / "white.png")
    browser.wait_until(f"Math.min(...{values}) === 1")
    assert text(browser, "form.run [role=alert]") == ""


def test_a_failure_of_the_form_is_told(browser: Browser, service: Service) -> None:
    browser.open(service.address("texts", "run"))
    browser.wait_until("document.querySelector('form.run textarea')")
    for written, told in (("{", "is no JSON"), ("[[1]]", "400: ")):
        browser.evaluate(f"document.querySelector('form.run textarea').value = {json.dumps(written)}")
        browser.evaluate("document.querySelector('form.run button[type=submit]').click()")
        seen(browser, "form.run .status[data-state=bad]", told)
    browser.complaints.clear()  # of the status 400
    browser.evaluate(f"document.querySelector('form.run textarea').value = {json.dumps(json.dumps([HOSTILE]))}")
    browser.evaluate("document.querySelector('form.run button[type=submit]').click()")
    seen(browser, "form.run .output", HOSTILE)


def test_what_strangers_write_stays_text(browser: Browser, service: Service) -> None:
    for tab in ("now", "graph", "run"):
        browser.open(service.address(HOSTILE, tab))
        service.begin(HOSTILE, 1.0)
        service.begin("waiting", [1, 2, 3])
        seen(browser, "#failures", HOSTILE)
        seen(browser, "#now", HOSTILE)
        seen(browser, "#chosen-title", HOSTILE)
        next_snapshots(browser)
    browser.wait_until("document.querySelector('form.run')")
    browser.evaluate("document.querySelector('form.run button[type=submit]').click()")
    seen(browser, "form.run .status[data-state=bad]", HOSTILE)
    browser.complaints.clear()  # of the status 500
    assert browser.evaluate("window.isHacked") is None
    assert browser.evaluate("[...document.images].map((each) => each.getAttribute('src'))") == ["live/files/icon.svg"]


def test_the_keyboard_reaches_all_of_it(browser: Browser, service: Service) -> None:
    browser.open(service.address())
    browser.wait_until("document.querySelector('#models button')")
    browser.press("Tab")
    assert focused(browser) == "Skip to the models"
    browser.press("Enter")
    order = []
    for _ in range(6):
        browser.press("Tab")
        order.append(focused(browser).split("\n")[0])
    names = ["digits", "waiting", HOSTILE, "texts"]
    assert [name for name in order if name in names] == names
    assert order[-1] == "Overview"
    assert browser.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    browser.press("ArrowRight")
    assert focused(browser) == "Graph"
    seen(browser, "#panel-graph", "nodes")
    browser.press("ArrowRight", "ArrowRight", "ArrowLeft")
    assert focused(browser) == "Run"
    assert browser.evaluate("document.querySelectorAll('[role=tab][tabindex=\"0\"]').length") == 1


def test_a_focus_outlasts_the_next_snapshots(browser: Browser, service: Service) -> None:
    browser.open(service.address())
    browser.wait_until("document.querySelectorAll('#models button').length === 4")
    browser.evaluate("document.querySelectorAll('#models button')[1].focus()")
    service.begin("waiting", [1])
    seen(browser, "#now", "each/wait")
    next_snapshots(browser, 3)
    assert focused(browser) == "waiting"
    browser.press("Enter")
    seen(browser, "#chosen-title", "waiting")
    assert focused(browser) == "waiting version 1"
    assert browser.evaluate("document.querySelector('[aria-current=true] button').innerText") == "waiting"


def test_a_pause_holds_what_is_shown(browser: Browser, service: Service) -> None:
    browser.open(service.address())
    browser.evaluate("document.getElementById('pause').click()")
    seen(browser, "#connection", "paused")
    have = browser.evaluate("document.documentElement.dataset.seen")
    service.begin("waiting", [1])
    browser.evaluate("new Promise((later) => setTimeout(later, 2500))")
    assert browser.evaluate("document.documentElement.dataset.seen") == have
    browser.evaluate("document.getElementById('pause').click()")
    seen(browser, "#now", "each/wait")


@pytest.mark.parametrize("is_dark", [False, True])
@pytest.mark.parametrize("width", [400, 800, 1400])
def test_it_fits_and_is_readable(browser: Browser, service: Service, width: int, *, is_dark: bool) -> None:
    for tab in ("now", "graph", "run"):
        browser.open(service.address("digits", tab), width, is_dark=is_dark)
        service.begin(HOSTILE, 1.0)
        service.begin("waiting", [1])
        seen(browser, "#now", "each/wait")
        seen(browser, "#failures", "LookupError")
        if tab == "run":
            browser.wait_until("document.querySelector('form.run')")
        if tab == "graph":
            browser.wait_until("document.querySelector('.graph')?.dataset.state === 'ready'")
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
        assert browser.evaluate(LOW_CONTRAST) == []
        assert unnamed(browser) == []


def unnamed(browser: Browser) -> list[Any]:
    """What can be used, and has no name for a screen reader."""
    nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
    used = ("button", "textbox", "searchbox", "checkbox", "tab", "tabpanel", "tree", "treeitem", "link", "region")
    shown = [node for node in nodes if not node["ignored"] and node.get("role", {}).get("value") in used]
    return [node for node in shown if not node.get("name", {}).get("value")]


# Texts whose colour is not at least 4.5 times as light or dark as what they stand on, as WCAG wants it.
LOW_CONTRAST = """(() => {
  const parse = (color) => color.match(/[\\d.]+/g).map(Number);
  const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => [r, g, b].map((c) => linear(c / 255))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const under = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const color = parse(getComputedStyle(each).backgroundColor);
      if (color.length < 4 || color[3] > 0) return color;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || !element.checkVisibility() || element.closest("svg, .hidden, .skip, [disabled]")) continue;
    const [a, b] = [light(parse(getComputedStyle(element).color)), light(under(element))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) found.push(`${element.tagName}.${element.className}: ${element.innerText}`);
  }
  return found;
})()"""


def test_a_token_is_asked_for_and_kept_in_the_tab_alone(portal: BlockingPortal, open_browser: Browser) -> None:
    browser = open_browser
    with served(portal, tokens=["secret"]) as service:
        browser.evaluate("1")
        browser.call("Page.navigate", url=service.url)
        browser.wait_until("document.getElementById('token-form')?.hidden === false")
        seen(browser, "#connection", "needs a token")
        assert browser.evaluate("document.activeElement.id") == "token"
        browser.press(*"wrong", "Enter")
        browser.wait_until("document.getElementById('token-form')?.hidden === false")
        browser.evaluate("document.getElementById('token').focus()")
        browser.press(*"secret", "Enter")
        seen(browser, "#connection", "live")
        assert browser.evaluate("document.getElementById('token-form').hidden") is True
        assert browser.evaluate("[localStorage.length, Object.values(sessionStorage).join(), document.cookie]") == [
            0,
            "secret",
            "",
        ]
        assert not any("secret" in address for address in browser.requests)
        browser.evaluate("location.hash = '#' + encodeURIComponent('[\"digits\",\"1\"]') + '&run'")
        browser.wait_until("document.querySelector('form.run')")
        browser.evaluate("document.querySelector('form.run button[type=submit]').click()")
        seen(browser, "form.run .status", "done")
        browser.call("Page.navigate", url="about:blank")
        browser.complaints.clear()  # of the status 401


@contextlib.asynccontextmanager
async def mounted(prefix: str, sources: dict[str, ax.Graph | ModelSource]) -> AsyncIterator[int]:
    """The service below *prefix* in another app, on the port of a server that knows nothing of it."""
    async with create_app(sources, page=True) as app:
        outer = Starlette(routes=[Mount(prefix, app)])
        server = uvicorn.Server(uvicorn.Config(outer, lifespan="off", log_config=None, ws="none"))
        with socket.create_server(("127.0.0.1", 0)) as listening:
            running = asyncio.create_task(server.serve([listening]))
            yield listening.getsockname()[1]
            app.end_page()
            server.should_exit = True
            await running


def test_it_works_behind_a_prefix(portal: BlockingPortal, open_browser: Browser) -> None:
    browser = open_browser
    with portal.wrap_async_context_manager(mounted("/deep/er", models())) as port:
        prefix = f"http://127.0.0.1:{port}/deep/er/"
        browser.open(f"{prefix}#%5B%22digits%22%2C%221%22%5D&run")
        seen(browser, "#connection", "live")
        browser.wait_until("document.querySelector('form.run')")
        browser.evaluate("document.querySelector('form.run button[type=submit]').click()")
        seen(browser, "form.run .status", "done")
        assert [address for address in browser.requests if not address.startswith(prefix)] == []
        assert browser.complaints == []
        browser.call("Page.navigate", url="about:blank")


def test_the_end_of_the_service_is_told_and_the_next_one_is_found(
    portal: BlockingPortal, open_browser: Browser
) -> None:
    browser = open_browser
    with served(portal) as service:
        browser.open(service.url)
        seen(browser, "#connection", "live")
    seen(browser, "#connection", "no connection")
    port = int(service.url.rstrip("/").rpartition(":")[2])
    again = serving(ModelRepository(sources=models()), http_port=port, grpc_port=None, drain_s=1)
    with portal.wrap_async_context_manager(again):
        seen(browser, "#connection", "live")
        browser.call("Page.navigate", url="about:blank")
    browser.complaints.clear()  # of the connections that were refused
