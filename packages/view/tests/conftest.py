"""A headless Chromium that looks at a served run, and notes everything that it asks for."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from packages.view.tests.played import Writer, play

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """The browser. Not for longer than a module: while Playwright is on, no other test of the process can have an event
    loop."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs Playwright: `uv run --group browser pytest`")
    if CHROMIUM is None:
        pytest.skip("needs Chromium: `apt-get install chromium`")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@dataclass(eq=False)
class Tab:
    """A page of the browser, and what happened in it that must not happen."""

    page: Any
    base: str
    asked: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def open(self, address: str = "") -> Any:
        """Go to an address of the viewer and wait until something is shown."""
        self.page.goto(self.base + address)
        self.page.wait_for_selector("main > div")
        return self.page

    def close(self) -> None:
        """Close the page, which asks its server as long as it is open. A second call does nothing."""
        if self in OPEN:
            OPEN.remove(self)
            self.page.context.close()

    def texts(self, selector: str) -> list[str]:
        """The texts of all elements that match."""
        return [text.strip() for text in self.page.locator(selector).all_inner_texts()]

    def until(self, condition: str) -> None:
        """Wait until a JavaScript expression holds. Playwright's own way needs `eval`, which the page forbids."""
        self.wait(lambda: self.page.evaluate(condition), f"never became true: {condition}")

    def wait(self, holds: Callable[[], bool], fault: str) -> None:
        """Wait until something holds, for 30 s."""
        end = monotonic() + 30
        while not holds():
            assert monotonic() < end, fault
            self.page.wait_for_timeout(40)

    def has_sideways_scroll(self) -> bool:
        """Whether the page is wider than the window."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth > innerWidth"))


Opener = Callable[..., Tab]
OPEN: list[Tab] = []


@pytest.fixture
def new_tab(chromium: Any) -> Iterator[Opener]:
    """Opens tabs. At the end none may have asked another host, thrown an error or raised a dialog."""
    tabs: list[Tab] = []

    def make(base: str, width: int = 1280, height: int = 800, **options: Any) -> Tab:
        context = chromium.new_context(viewport={"width": width, "height": height}, **options)
        tab = Tab(context.new_page(), base)
        context.set_default_timeout(30_000)
        context.on("request", lambda request: tab.asked.append(request.url))
        tab.page.on("pageerror", lambda error: tab.faults.append(f"error: {error}"))
        tab.page.on("dialog", lambda dialog: (tab.faults.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        tab.page.on("console", lambda message: _note(tab, message))
        tabs.append(tab)
        OPEN.append(tab)
        return tab

    yield make
    for tab in tabs:
        tab.close()
        assert tab.faults == []
        assert [url for url in tab.asked if not url.startswith((tab.base, "data:"))] == []


def _note(tab: Tab, message: Any) -> None:
    # A refusal of the server is an answer, which the page shows in words.
    if message.type == "error" and "the server responded with a status of 4" not in message.text:
        tab.faults.append(f"console: {message.text}")


@dataclass
class Served:
    """Runs that `slimrl view` serves."""

    base: str
    runs: Path
    writer: Writer


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, chromium: Any) -> Iterator[Served]:
    """Two runs of one configuration, served by the command."""
    runs = tmp_path_factory.mktemp("viewer")
    writer = play(runs / "a", seed=0)
    play(runs / "b", seed=1)
    yield from serve(runs, writer, "a", "b")


def serve(runs: Path, writer: Writer, *names: str) -> Iterator[Served]:
    """Start the command, and end it when the fixture ends."""
    paths = [str(runs / name) for name in names]
    command = [sys.executable, "-m", "slimrl", "view", *paths, "--port", "0", "--no-open"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if found := re.search(r"http://127\.0\.0\.1:\d+/", line):
                yield Served(found[0], runs, writer)
                for tab in [one for one in OPEN if one.base == found[0]]:
                    tab.close()
                break
        else:
            pytest.fail(f"the viewer did not start: {said}")
    finally:
        process.terminate()
        process.communicate(timeout=20)


@pytest.fixture
def tab(new_tab: Opener, served: Served) -> Tab:
    """A tab of a desktop's size, at the viewer of the two runs."""
    return new_tab(served.base)
