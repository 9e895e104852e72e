"""Chromium without a window, where there is one, and a page that tells what went wrong in it."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

# Debian's name and Chrome's.
_NAMES = ("chromium", "chromium-browser", "google-chrome")


@dataclass
class Watched:
    """A page with what it asked for and said.

    Attributes:
        page: Playwright's page.
        requests: Addresses that were asked for.
        said: What stood on the console, and errors.
    """

    page: object
    requests: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


def browser_path() -> str:
    """Where Chromium is; the test skips without it."""
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next(filter(None, map(shutil.which, _NAMES)), None)
    if path is None:
        pytest.skip("no chromium here: apt-get install chromium")
    return path


@contextmanager
def opened(browser, address: str, **context) -> Iterator[Watched]:
    """A page opened in a fresh context, once its scripts have run."""
    made = browser.new_context(**context)
    page = made.new_page()
    watched = Watched(page)
    page.on("request", lambda request: watched.requests.append(request.url))
    page.on("console", lambda message: watched.said.append(message.text))
    page.on("pageerror", lambda error: watched.said.append(str(error)))
    try:
        page.goto(address)
        page.wait_for_selector("html[data-ready=yes]", timeout=20_000)
        yield watched
    finally:
        made.close()
