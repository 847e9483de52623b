"""One Chromium for all tests of the page. Each page must stay without errors in its console."""

from collections.abc import Callable, Iterator

import pytest
from chromium import installed
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

Opened = Callable[..., Page]
expect.set_options(timeout=30_000)  # ms; other tests may run beside


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = installed()
    assert path is not None, "there is no Chromium; python tests/unit/chromium.py gets one"
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture
def opened(browser: Browser) -> Iterator[Opened]:
    """Opens pages; what they complain about fails the test."""
    complaints: list[str] = []
    contexts: list[BrowserContext] = []

    def open_page(url: str, width: int = 1280, scheme: str = "light") -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if scheme == "dark" else "light",
        )
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "console",
            lambda told: (
                complaints.append(told.text)
                if told.type in ("error", "warning") and "ERR_CONNECTION_REFUSED" not in told.text
                else None
            ),
        )
        page.goto(url)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []
