"""Finds a Chromium for the tests of the page, or gets one: one that is installed, else
Debian's package, else playwright's download. As a command, it says in one line what it could not
do."""

import os
import shutil
import subprocess
import sys

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_LONGEST_S = 600


def installed() -> str | None:
    """One that is there; playwright's own, if that has been downloaded."""
    for name in _NAMES:
        if (path := shutil.which(name)) is not None:
            return path
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if os.path.exists(path) else None


def gotten() -> str | None:
    """One that is there, or that can be had."""
    found = installed()
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        tried("apt-get", "update", "-q")
        tried("apt-get", "install", "-y", "-q", "chromium")
        found = installed()
    if found is None:
        tried(sys.executable, "-m", "playwright", "install", "chromium")
        found = installed()
    return found


def tried(*command: str) -> None:
    """Run a command that may fail; what it has made is looked for afterwards."""
    try:
        subprocess.run(command, capture_output=True, timeout=_LONGEST_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return


if __name__ == "__main__":
    if gotten() is None:
        sys.exit(
            "tests/browser is left out: no Chromium is installed, and neither Debian's package "
            "nor playwright's download could be had; install one and run make test again"
        )
