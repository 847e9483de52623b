"""Metrics as Prometheus itself reads them, where it is installed: `make test` tries Debian's
package first."""

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import yaml
from prometheus_client.parser import text_string_to_metric_families
from shown import added, board, tick

from sojourn.dashboard.server import Server

RULES = Path(__file__).parents[2] / "deploy" / "grafana" / "alerts.yaml"
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
        f"rule_files: [{RULES}]\n"
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
        linted = subprocess.run(
            ["promtool", "check", "metrics"],
            input=text,
            text=True,
            capture_output=True,
            check=False,
        )
        assert (linted.returncode, linted.stdout + linted.stderr) == (0, "")


def test_the_rules_are_whole() -> None:
    (group,) = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    names = [rule["alert"] for rule in group["rules"]]
    assert len(names) == len(set(names))
    for rule in group["rules"]:
        assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}, rule
        assert "sojourn" in rule["expr"], rule
        assert rule["labels"]["severity"] in ("warning", "critical"), rule
        assert rule["annotations"]["summary"], rule


def test_the_dashboard_for_grafana_is_whole() -> None:
    made = json.loads((RULES.parent / "sojourn.json").read_text(encoding="utf-8"))
    assert made["title"] == "Sojourn"
    panels = [panel for panel in made["panels"] if panel["type"] != "row"]
    numbers = [panel["id"] for panel in made["panels"]]
    assert len(numbers) == len(set(numbers))
    places: set[tuple[int, int]] = set()
    for panel in panels:
        assert panel["title"], panel
        assert panel["targets"], panel
        for target in panel["targets"]:
            assert "sojourn_" in target["expr"], panel
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel
        taken = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not places & taken, panel
        places |= taken


# What each rule says of a topology for which it is meant, and of one that is well in that.
TOLD = """
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {series: 'up{job="sojourn", instance="a:1"}', values: "1 1 0x10"}
    alert_rule_test:
      - {eval_time: 1m, alertname: SojournNotThere}
      - eval_time: 8m
        alertname: SojournNotThere
        exp_alerts: [{exp_labels: {job: sojourn, instance: "a:1", severity: critical}}]
  - interval: 1m
    input_series:
      - {series: 'up{job="sojourn", instance="a:1"}', values: "1x20"}
      - {series: 'sojourn_finished{topology="shop"}', values: "0x20"}
      - {series: 'sojourn_failed{topology="shop"}', values: "0x20 1x5"}
      - {series: 'sojourn_last_tick_timestamp_seconds{topology="shop"}', values: "0 60 120x20"}
    alert_rule_test:
      - {eval_time: 3m, alertname: SojournNoTicks}
      - eval_time: 10m
        alertname: SojournNoTicks
        exp_alerts: [{exp_labels: {topology: shop, severity: critical}}]
      - {eval_time: 10m, alertname: SojournNotThere}
      - {eval_time: 10m, alertname: SojournNotStarted}
      - {eval_time: 10m, alertname: SojournFailed}
      - eval_time: 22m
        alertname: SojournFailed
        exp_alerts: [{exp_labels: {topology: shop, severity: critical}}]
  - interval: 1m  # it starts for long, works without a commit, and loses tuples and its target
    input_series:
      - {series: 'sojourn_finished{topology="shop"}', values: "0x60"}
      - {series: 'sojourn_last_tick_timestamp_seconds{topology="shop"}', values: "_x14 900+60x45"}
      - {series: 'sojourn_intervals_total{topology="shop"}', values: "0x14 60+60x45"}
      - {series: 'sojourn_commits_total{topology="shop"}', values: "0x60"}
      - {series: 'sojourn_intervals_targeted_total{topology="shop"}', values: "0x14 60+60x45"}
      - {series: 'sojourn_intervals_within_target_total{topology="shop"}', values: "0x14 30+30x45"}
      - {series: 'sojourn_restarts_total{topology="shop"}', values: "0x40 1 2 3x18"}
      - {series: 'sojourn_processors_needed{topology="shop"}', values: "9x60"}
      - {series: 'sojourn_processors_limit{topology="shop"}', values: "8x60"}
      - {series: 'sojourn_operator_lag_seconds{topology="shop",operator="i"}', values: "0x20 60x40"}
      - {series: 'sojourn_operator_dropped_total{topology="shop",operator="a"}', values: "0x50 5x9"}
      - {series: 'sojourn_operator_shed_total{topology="shop", operator="a"}', values: "0x60"}
    alert_rule_test:
      - eval_time: 12m
        alertname: SojournNotStarted
        exp_alerts: [{exp_labels: {topology: shop, severity: critical}}]
      - {eval_time: 12m, alertname: SojournNoCommit}
      - {eval_time: 20m, alertname: SojournNotStarted}
      - eval_time: 30m
        alertname: SojournNoCommit
        exp_alerts: [{exp_labels: {topology: shop, severity: critical}}]
      - eval_time: 35m
        alertname: SojournTargetMissed
        exp_alerts: [{exp_labels: {topology: shop, severity: warning}}]
      - eval_time: 45m
        alertname: SojournRestarts
        exp_alerts: [{exp_labels: {topology: shop, severity: critical}}]
      - eval_time: 10m
        alertname: SojournNeedsMoreProcessors
        exp_alerts: [{exp_labels: {topology: shop, severity: warning}}]
      - {eval_time: 20m, alertname: SojournSourceBehind}
      - eval_time: 30m
        alertname: SojournSourceBehind
        exp_alerts: [{exp_labels: {topology: shop, operator: i, severity: warning}}]
      - {eval_time: 49m, alertname: SojournTuplesLost}
      - eval_time: 52m
        alertname: SojournTuplesLost
        exp_alerts: [{exp_labels: {topology: shop, operator: a, severity: warning}}]
"""


def test_rules_tell_a_topology_that_is_dead(tmp_path: Path) -> None:
    rules = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    for rule in rules["groups"][0]["rules"]:
        del rule["annotations"]  # their words are not what is tried
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules), encoding="utf-8")
    cases = yaml.safe_load(TOLD)
    cases["rule_files"] = ["rules.yaml"]
    (tmp_path / "cases.yaml").write_text(yaml.safe_dump(cases), encoding="utf-8")
    named = {case["alertname"] for test in cases["tests"] for case in test["alert_rule_test"]}
    assert named == {rule["alert"] for rule in rules["groups"][0]["rules"]}
    if shutil.which("promtool"):
        for command in (("check", "rules", RULES), ("test", "rules", tmp_path / "cases.yaml")):
            done = subprocess.run(
                ["promtool", *command], capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stdout + done.stderr
