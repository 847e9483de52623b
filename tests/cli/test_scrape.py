"""Metrics as Prometheus itself reads them, where it is installed; Debian's package has it."""

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from shown import added, board, tick

from sojourn.dashboard.server import Server

ROOT = Path(__file__).parents[2]
QUERY = "sum by (topology) (sojourn_operator_processors_wanted)"
LONGEST_S = 60


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def scraped(address: str, directory: Path) -> float:
    """What Prometheus answers to the query, once it has read the metrics."""
    (directory / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
        f"rule_files: [{ROOT / 'deploy' / 'grafana' / 'alerts.yaml'}]\n"
        f"scrape_configs: [{{job_name: sojourn, static_configs: [{{targets: ['{address}']}}]}}]\n",
        encoding="utf-8",
    )
    port = free_port()
    command = [
        *("prometheus", f"--config.file={directory / 'prometheus.yml'}", "--log.level=error"),
        *(f"--storage.tsdb.path={directory / 'data'}", f"--web.listen-address=127.0.0.1:{port}"),
    ]
    url = f"http://127.0.0.1:{port}/api/v1/query?query={urllib.parse.quote(QUERY)}"
    with subprocess.Popen(command) as prometheus:
        try:
            deadline_s = time.monotonic() + LONGEST_S
            while time.monotonic() < deadline_s and prometheus.poll() is None:
                try:
                    with urllib.request.urlopen(url, timeout=5) as answer:
                        found = json.load(answer)["data"]["result"]
                except urllib.error.URLError:  # it is starting
                    found = []
                if found:
                    return float(found[0]["value"][1])
                time.sleep(0.2)
        finally:
            prometheus.terminate()
    raise AssertionError("Prometheus has read nothing")


def test_metrics_are_scraped_and_rules_are_understood(tmp_path: Path) -> None:
    b = board()
    for number in range(1, 10):
        b.add(tick(number, decision=added()) if number == 5 else tick(number))
    with Server(b, "127.0.0.1:0") as server:
        with urllib.request.urlopen(f"{server.url}metrics", timeout=10) as answer:
            text = answer.read().decode()
        wanted = [
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == "sojourn_operator_processors_wanted"
        ]
        assert wanted == [3, 2]
        if shutil.which("prometheus"):
            address = server.url.removeprefix("http://").rstrip("/")
            assert scraped(address, tmp_path) == 5
    if shutil.which("promtool"):
        rules = ROOT / "deploy" / "grafana" / "alerts.yaml"
        subprocess.run(["promtool", "check", "rules", rules], check=True, capture_output=True)
        linted = subprocess.run(
            ["promtool", "check", "metrics"],
            input=text,
            text=True,
            capture_output=True,
            check=False,
        )
        assert (linted.returncode, linted.stdout + linted.stderr) == (0, "")
