"""Gets Debian's package of Prometheus for the test that scrapes, unless one is installed. As a
command, it says in one line if it could not."""

import os
import shutil
import sys

from chromium import tried


def gotten() -> bool:
    """Whether Prometheus and its tool are there, now at least."""
    if not _there() and os.geteuid() == 0 and shutil.which("apt-get"):
        tried("apt-get", "update", "-q")
        tried("apt-get", "install", "-y", "-q", "--no-install-recommends", "prometheus")
    return _there()


def _there() -> bool:
    return all(shutil.which(name) is not None for name in ("prometheus", "promtool"))


if __name__ == "__main__":
    if not gotten():
        sys.exit(
            "metrics are parsed, but no Prometheus scrapes them: none is installed, and Debian's "
            "package could not be had; install one and run make test again"
        )
