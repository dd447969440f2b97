"""The workers on the live page, in a headless Chromium."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator

import numpy as np
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

from asyncexec.service.models.files import ModelSource
from asyncexec.service.models.repository import ModelRepository
from asyncexec.service.requests import InferRequest, InferTensor
from asyncexec.service.server import serving
from tests.chromium import CHROMIUM, HOW_TO_GET_IT, Browser, chromium
from tests.distributed.clusters import SmallCluster, small_cluster
from tests.service.live.test_page_in_chromium import LOW_CONTRAST, seen, unnamed
from tests.service.test_workers import FIRST, SECOND, doubling

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason=HOW_TO_GET_IT)]
HOSTILE = "<img src=x onerror=window.isHacked=1>"
ROWS = "[...document.querySelectorAll('#workers tbody tr')]"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("chromium")) as found:
        yield found


@pytest.fixture
def portal() -> Iterator[BlockingPortal]:
    with start_blocking_portal() as found:
        yield found


class Service:
    """A service with two workers, in a loop of its own."""

    def __init__(self, portal: BlockingPortal, url: str, small: SmallCluster, repository: ModelRepository) -> None:
        self.url = url
        self._portal = portal
        self._small = small
        self._repository = repository

    def infer(self, size: int) -> None:
        """Call the model on the first worker."""
        request = InferRequest(HOSTILE, {"x": InferTensor("FP32", np.ones(size, np.float32))})
        self._portal.call(self._repository.model(HOSTILE).infer, request)

    def end_second(self) -> None:
        """End the second worker."""
        self._portal.call(self._small.workers[1].close)


@contextlib.asynccontextmanager
async def _serving() -> AsyncIterator[tuple[str, SmallCluster, ModelRepository]]:
    async with small_cluster() as small:
        sources = {
            HOSTILE: ModelSource(doubling(FIRST), cluster=small.cluster),
            "other": ModelSource(doubling(SECOND), cluster=small.cluster),
        }
        repository = ModelRepository(sources=sources)
        async with serving(repository, http_port=0, grpc_port=None, drain_s=1) as ports:
            yield f"http://127.0.0.1:{ports.http}/", small, repository


@pytest.fixture
def service(portal: BlockingPortal, browser: Browser) -> Iterator[Service]:
    with portal.wrap_async_context_manager(_serving()) as (url, small, repository):
        yield Service(portal, url, small, repository)
        assert browser.complaints == []
        browser.call("Page.navigate", url="about:blank")


def test_workers_are_shown_with_what_crosses_and_their_lag(browser: Browser, service: Service) -> None:
    browser.open(service.url)
    browser.wait_until(f"{ROWS}.length === 2")
    names = browser.evaluate(f"{ROWS}.map((row) => row.querySelector('th span').innerText)")
    assert names == ["worker:0", "worker:1"]
    assert browser.evaluate(f"{ROWS}.map((row) => row.querySelector('.state').hidden)") == [True, True]
    assert browser.evaluate(f"{ROWS}.every((row) => /ms|µs/.test(row.cells[7].innerText))")  # round trips
    seen(browser, "#workers tbody tr td:nth-of-type(2)", "0 values/s")
    service.infer(1_000_000)
    seen(browser, "#workers tbody tr td:nth-of-type(2)", "MB/s")  # 4 MB in about a second
    assert HOSTILE in browser.evaluate("document.querySelector('#workers').innerText")
    assert browser.evaluate("window.isHacked") is None


def test_a_lost_worker_is_told_of(browser: Browser, service: Service) -> None:
    browser.open(service.url)
    browser.wait_until(f"{ROWS}.length === 2")
    service.end_second()
    browser.wait_until(f"!{ROWS}[1].querySelector('.state').hidden")
    assert "not connected" in browser.evaluate(f"{ROWS}[1].innerText")
    assert browser.evaluate(f"[{ROWS}[1].cells[7].innerText, {ROWS}[1].cells[9].innerText]") == ["–", "1"]
    seen(browser, "#models tbody", "/job:worker/replica:0/task:1 is not connected")


@pytest.mark.parametrize("is_dark", [False, True])
@pytest.mark.parametrize("width", [400, 800, 1400])
def test_it_fits_and_is_readable(browser: Browser, service: Service, width: int, *, is_dark: bool) -> None:
    service.end_second()
    browser.open(service.url, width, is_dark=is_dark)
    seen(browser, "#workers", "values/s")
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate(LOW_CONTRAST) == []
    assert unnamed(browser) == []
