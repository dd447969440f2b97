"""A headless Chromium, driven over the DevTools protocol: pages from files and from servers on this machine."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
HOW_TO_GET_IT = "there is no Chromium: apt-get install chromium (Debian), or put chromium or google-chrome on the PATH"
FLAGS = [
    *(
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
    ),
    *("--disable-component-update", "--disable-sync", "--hide-scrollbars", "--remote-debugging-port=0"),
]
LONGEST_ANSWER = 2**28  # bytes: screenshots


class Browser:
    """One tab.  *complaints* are what it said on its console; *requests* are the addresses that it asked for."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._session: str | None = None
        self._sent = 0
        self._ended: set[str] = set()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Any:
        """The result of a command of the protocol; what the tab tells meanwhile is kept."""
        self._sent += 1
        message = {"id": self._sent, "method": method, "params": params}
        self._connection.send(json.dumps(message if self._session is None else {**message, "sessionId": self._session}))
        while True:
            answer = json.loads(self._connection.recv(timeout=60))
            if answer.get("id") == self._sent:
                assert "error" not in answer, answer["error"]
                return answer["result"]
            self._note(answer)

    def _note(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        match event.get("method"):
            case "Runtime.exceptionThrown":
                self.complaints.append(str(params["exceptionDetails"].get("exception", params)))
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.complaints.append(str(params["args"]))
            case "Log.entryAdded":
                self.complaints.append(params["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])

    def show(self, path: Path, width: int = 1400, height: int = 900, *, is_dark: bool = False) -> None:
        """Open the page in *path*, and wait until its picture and its tree are there."""
        self.open(path.as_uri(), width, height, is_dark=is_dark)

    def open(self, url: str, width: int = 1400, height: int = 900, *, is_dark: bool = False) -> None:
        """Open the page at *url*, and wait until it says that it is ready."""
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        self.call("Emulation.setEmulatedMedia", features=features)
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.complaints.clear()
        self.requests.clear()
        self.call("Page.navigate", url=url)
        self.evaluate(READY)

    def evaluate(self, script: str) -> Any:
        """The value of *script*, awaited."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_until(self, condition: str) -> None:
        """Wait until *condition*, a script, holds; the test's own timeout ends it."""
        self.evaluate(
            f"""new Promise((resolve) => {{
              const look = () => (({condition}) ? resolve(true) : setTimeout(look, 20));
              look();
            }})"""
        )

    def press(self, *keys: str) -> None:
        """Press and release each of *keys*, as a user does."""
        for key in keys:
            text = {"Enter": "\r", "Space": " "}.get(key, key if len(key) == 1 else "")
            name = " " if key == "Space" else key
            code = {"Enter": 13, "Tab": 9, "Space": 32}.get(key, 0)
            self.call("Input.dispatchKeyEvent", type="keyDown", key=name, text=text, windowsVirtualKeyCode=code)
            self.call("Input.dispatchKeyEvent", type="keyUp", key=name, windowsVirtualKeyCode=code)

    def click(self, x: float, y: float) -> None:
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))


# The page says so when the picture has been drawn, and the tree is there.
READY = """new Promise((resolve) => {
  const look = () => (document.documentElement?.dataset.state === "ready" ? resolve(true) : setTimeout(look, 20));
  look();
})"""


@contextmanager
def chromium(folder: Path) -> Iterator[Browser]:
    """A browser whose profile is in *folder*; it has ended when the block has."""
    from websockets.sync.client import connect

    assert CHROMIUM is not None, HOW_TO_GET_IT
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={folder / 'profile'}", "about:blank"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            lines = iter(process.stderr.readline, "")
            address = next(line.split()[-1] for line in lines if line.startswith("DevTools listening on"))
            with connect(address, max_size=LONGEST_ANSWER, compression=None) as connection:
                browser = Browser(connection)
                yield browser
                browser._session = None
                browser.call("Browser.close")
        finally:
            process.terminate()
            process.communicate()
