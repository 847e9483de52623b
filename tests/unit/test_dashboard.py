"""The dashboard's web application without a browser: REST, who may ask, metrics, reports."""

import json
import re
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from shown import added, board, tick
from starlette.testclient import TestClient

from sojourn.dashboard import report
from sojourn.dashboard.app import application
from sojourn.dashboard.board import Board
from sojourn.dashboard.controls import Controls
from sojourn.dashboard.guard import Guard
from sojourn.dashboard.hosts import name_in
from sojourn.dashboard.server import Server
from sojourn.dashboard.tick import About
from sojourn.dashboard.whatif import Model, answered
from sojourn.errors import InputError, TopologyFailed
from sojourn.queueing.network import Network
from sojourn.queueing.station import Station
from sojourn.units import parse_address

ROOT = Path(__file__).parents[2]
TOKEN = "a token"
MODEL = Model(
    Network({"check": Station(50.0, 33.0), "price": Station(50.0, 31.0)}, 50.0),
    minimum={"check": 1, "price": 1},
    maximum={},
    fixed={},
    present={"check": 3, "price": 2},
    target_s=0.2,
)


def filled() -> Board:
    b = board(began_s=1e9)
    for number in range(1, 11):
        b.add(tick(number, decision=added()) if number == 6 else tick(number), lambda: MODEL)
    return b


def client(b: Board, controls: Controls | None = None, bound: str = "127.0.0.1") -> TestClient:
    return TestClient(application(b, bound, controls), base_url="http://127.0.0.1:4190")


@pytest.fixture
def asked() -> TestClient:
    return client(filled())


def test_the_page_is_served_with_all_it_needs(asked: TestClient) -> None:
    page = asked.get("/")
    assert page.status_code == 200
    assert "default-src 'self'" in page.headers["content-security-policy"]
    names = re.findall(r'(?:src|href)="(static/[^"]+)"', page.text)
    assert len(names) >= 5
    for name in names:
        assert asked.get(f"/{name}").status_code == 200, name
    assert "MIT" in asked.get("/static/uPlot.LICENSE").text
    assert "http" not in re.sub(r"http://www.w3.org/\S+", "", page.text), "nothing from elsewhere"


def test_the_topology_is_told_with_its_places(asked: TestClient) -> None:
    found = asked.get("/api/v1/topology").json()
    assert found["name"] == "orders"
    assert [one["name"] for one in found["vertices"]] == ["in", "check", "price", "out"]
    assert [one["feedback"] for one in found["edges"]].count(True) == 1


def test_the_allocation_is_told_with_what_limits_it(asked: TestClient) -> None:
    found = asked.get("/api/v1/allocation").json()
    assert found["operators"]["check"] == {"processors": 3, "wanted": 3}
    assert (found["total"], found["most"]) == (5, 22)


def test_samples_are_columns_since_a_time_or_one_tick(asked: TestClient) -> None:
    found = asked.get("/api/v1/samples", params={"since": 7}).json()
    assert found["history"]["time"] == [8.0, 9.0, 10.0]
    assert found["history"]["processors"]["price"] == [2, 2, 2]
    assert found["latest"]["vertices"]["price"]["share"] == 0.6
    one = asked.get("/api/v1/samples", params={"number": 6}).json()
    assert one["number"] == 6
    gone = asked.get("/api/v1/samples", params={"number": 99})
    assert gone.status_code == 404
    assert gone.json()["error"] == "tick 99 is not remembered any more"


def test_decisions_come_newest_first(asked: TestClient) -> None:
    found = asked.get("/api/v1/decisions").json()
    assert [one["number"] for one in found] == [10, 6, 5]
    acting = asked.get("/api/v1/decisions", params={"acting": 1}).json()
    assert [one["action"] for one in acting] == ["add"]
    assert acting[0]["allocation"] == {"check": 4, "price": 2}
    assert len(asked.get("/api/v1/decisions", params={"limit": 1}).json()) == 1


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("samples?since=soon", "since must be a number from 0 to 1e+12; got 'soon'"),
        ("decisions?limit=0", "limit must be a number from 1 to 10000; got '0'"),
        ("whatif?load=nan", "load must be a number from 0.01 to 100; got 'nan'"),
        ("whatif?target=5 parsecs", "target: unknown unit 'parsecs'"),
        ("whatif?target=0s", "target must be above zero"),
    ],
)
def test_a_bad_question_is_refused_in_words(asked: TestClient, query: str, error: str) -> None:
    answer = asked.get(f"/api/v1/{query}")
    assert answer.status_code == 400
    assert answer.json()["error"].startswith(error)


def test_what_if_is_answered_by_the_model(asked: TestClient) -> None:
    easy = asked.get("/api/v1/whatif", params={"target": "1s"}).json()
    hard = asked.get("/api/v1/whatif", params={"target": "80ms"}).json()
    busy = asked.get("/api/v1/whatif", params={"load": 3}).json()
    assert easy["total"] < hard["total"] < busy["total"]
    assert hard["expected_s"] <= 0.08
    out = asked.get("/api/v1/whatif", params={"target": "10ms"}).json()
    assert out["reason"]
    assert out["total"] == 0


def test_what_if_takes_bias_and_headroom_into_account() -> None:
    biased = Model(
        **{
            **MODEL.__dict__,
            "headroom": 0.1,
            "correct": lambda estimate_s, _bare_s: 2 * estimate_s,
            "estimate_for": lambda measured_s, _bare_s: measured_s / 2,
        }
    )
    found = answered(biased, 0.2)
    assert found.expected_s is not None
    assert found.expected_s <= 0.9 * 0.2
    assert found.total > answered(MODEL, 0.2).total
    assert answered(MODEL, load=30.0).present_s is None, "what is there cannot keep up"
    assert answered(MODEL, processors=9).total == 9


def test_without_a_model_it_says_so() -> None:
    answer = client(board()).get("/api/v1/whatif")
    assert answer.json()["reason"] == "the model says nothing yet: nothing was measured yet"


@pytest.mark.parametrize(
    ("headers", "fine"),
    [
        ({}, True),
        ({"host": "localhost:4190"}, True),
        ({"host": "[::1]:4190"}, True),
        ({"host": "evil.example:4190"}, False),
        ({"host": "127.0.0.1.evil.example"}, False),
        ({"host": "192.168.1.7:4190"}, False),
        ({"host": ""}, False),
        ({"origin": "http://127.0.0.1:4190"}, True),
        ({"origin": "http://evil.example"}, False),
        ({"origin": "http://127.0.0.1:9999"}, False),
        ({"origin": "null"}, False),
        ({"sec-fetch-site": "same-origin"}, True),
        ({"sec-fetch-site": "cross-site"}, False),
        ({"sec-fetch-site": "same-site"}, False),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, True),
    ],
)
def test_foreign_hosts_and_other_sites_are_refused(
    asked: TestClient, headers: Mapping[str, str], fine: bool
) -> None:
    for path in ("/", "/api/v1/topology", "/metrics", "/static/page.js"):
        answer = asked.get(path, headers=dict(headers))
        assert (answer.status_code == 200) == fine, path
        assert "access-control-allow-origin" not in answer.headers


def test_an_open_server_is_asked_by_address_but_not_by_a_foreign_name() -> None:
    open_to_all = client(filled(), bound="0.0.0.0")
    assert open_to_all.get("/", headers={"host": "10.1.2.3:4190"}).status_code == 200
    assert open_to_all.get("/", headers={"host": "evil.example"}).status_code == 403
    assert Guard(lambda *_: None, "192.168.0.1").open  # type: ignore[arg-type]
    assert [name_in(h) for h in ("A:1", "[::1]:2", "b", "::1")] == ["a", "::1", "b", "::1"]


class Ran:
    """What a topology was told."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.failed = False
        self.controls = Controls(TOKEN, self.change, self.told.append)

    def change(self, given: Mapping[str, Any]) -> None:
        if given.get("max_sojourn") == "soon":
            raise InputError("max_sojourn must be a duration")
        if self.failed:
            raise TopologyFailed("'check' divided by zero")
        self.told.append(dict(given))


BEARER = {"authorization": f"Bearer {TOKEN}"}


def test_changes_are_off_unless_asked_for() -> None:
    b = filled()
    answer = client(b).post("/api/v1/limits", json={"max_sojourn": "1s"}, headers=BEARER)
    assert answer.status_code == 403
    assert "changes are off" in answer.json()["error"]


def test_changes_need_the_token() -> None:
    ran = Ran()
    asked = client(filled(), ran.controls)
    for headers in ({}, {"authorization": "Bearer guess"}, {"authorization": TOKEN}):
        for path, body in (("limits", {"max_sojourn": "1s"}), ("pause", {"paused": True})):
            answer = asked.post(f"/api/v1/{path}", json=body, headers=headers)
            assert answer.status_code == 401, path
    foreign = {**BEARER, "origin": "http://evil.example"}
    assert asked.post("/api/v1/pause", json={"paused": True}, headers=foreign).status_code == 403
    assert asked.get("/api/v1/pause", headers=BEARER).status_code == 405
    assert ran.told == []


def test_limits_and_a_pause_reach_the_topology() -> None:
    ran, b = Ran(), filled()
    asked = client(b, ran.controls)
    body = {"max_sojourn": "1s", "max_processors": None}
    assert asked.post("/api/v1/limits", json=body, headers=BEARER).status_code == 200
    assert asked.post("/api/v1/pause", json={"paused": True}, headers=BEARER).status_code == 200
    assert ran.told == [body, True]
    ran.failed = True
    answer = asked.post("/api/v1/limits", json=body, headers=BEARER)
    assert (answer.status_code, answer.json()) == (409, {"error": "'check' divided by zero"})


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("limits", b'{"max_sojourn": "soon"}', 400),
        ("limits", b"{}", 400),
        ("limits", b'{"percentile": 3}', 400),
        ("limits", b"[]", 400),
        ("limits", b"{", 400),
        ("pause", b'{"paused": 1}', 400),
        ("pause", b'{"paused": true, "more": 1}', 400),
        ("limits", b'{"x": "' + 20_000 * b"x" + b'"}', 413),
    ],
)
def test_a_bad_change_is_refused(path: str, body: bytes, status: int) -> None:
    ran = Ran()
    headers = {**BEARER, "content-type": "application/json"}
    answer = client(filled(), ran.controls).post(f"/api/v1/{path}", content=body, headers=headers)
    assert answer.status_code == status
    assert answer.json()["error"]
    assert ran.told == []


def events(stream: Iterator[bytes]) -> Iterator[tuple[str, Any]]:
    """What a page hears, until the server leaves."""
    kind = ""
    for line in stream:
        key, _, value = line.decode().rstrip().partition(": ")
        if key == "event":
            kind = value
        elif key == "data":
            yield kind, json.loads(value)


def test_a_page_hears_how_it_ended_before_the_server_leaves() -> None:
    b = filled()
    with Server(b, "127.0.0.1:0") as server:
        stream = urllib.request.urlopen(f"{server.url}api/v1/events", timeout=20)
        heard = events(stream)
        kind, first = next(heard)
        assert (kind, first["status"]["finished"]) == ("begin", False)
        b.end("'check' divided by zero")
    *_, (_, last) = heard
    assert last["status"]["finished"] is True
    assert last["status"]["problem"] == "'check' divided by zero"


def test_files_are_asked_for_anew(asked: TestClient) -> None:
    for path in ("/", "/static/page.js", "/static/page.css"):
        assert asked.get(path).headers["cache-control"] == "no-cache", path


def test_metrics_tell_when_the_last_tick_was_and_how_it_ended() -> None:
    b = filled()
    b.end("'check' divided by zero")
    found = {name: value for name, _, value in samples(client(b).get("/metrics").text)}
    assert found["sojourn_last_tick_timestamp_seconds"] == 1e9 + 10
    assert (found["sojourn_finished"], found["sojourn_failed"]) == (1, 1)


def samples(text: str) -> Iterator[tuple[str, dict[str, str], float]]:
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            yield sample.name, sample.labels, sample.value


def test_metrics_can_be_parsed_and_keep_to_conventions(asked: TestClient) -> None:
    answer = asked.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    for family in text_string_to_metric_families(answer.text):
        assert family.name.startswith("sojourn_")
        assert family.documentation.endswith(".")
        assert not re.search(r"_(ms|millis|percent)\b", family.name)
    found = {(name, labels.get("operator", "")): v for name, labels, v in samples(answer.text)}
    assert found["sojourn_operator_processors", "check"] == 3
    assert found["sojourn_operator_arrivals_total", "price"] == 500
    assert found["sojourn_changes_total", ""] == 1
    assert found["sojourn_topology_sojourn_seconds_count", ""] == 1000
    assert found["sojourn_topology_sojourn_seconds_sum", ""] == pytest.approx(80)


def test_labels_are_bounded(asked: TestClient) -> None:
    used: dict[str, set[str]] = {}
    for _, labels, _ in samples(asked.get("/metrics").text):
        for name, value in labels.items():
            used.setdefault(name, set()).add(value)
    assert used.keys() <= {"topology", "operator", "statistic", "action", "le", "kind"}
    assert used["operator"] == {"in", "check", "price", "out"}
    assert used["topology"] == {"orders"}


def test_metrics_of_a_topology_with_odd_names_can_be_parsed() -> None:
    odd = Board(About('a "quoted"\nname\\', "run", {"é →": "operator"}))
    text = client(odd).get("/metrics").text
    assert {labels["topology"] for _, labels, _ in samples(text)} == {'a "quoted"\nname\\'}


def test_openmetrics_is_spoken_too(asked: TestClient) -> None:
    answer = asked.get(
        "/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"}
    )
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


@pytest.mark.parametrize("suffix", [".html", ".png"])
def test_a_report_is_one_file(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"out{suffix}"
    report.check(path)
    report.write(filled(), path)
    content = path.read_bytes()
    if suffix == ".png":
        assert content.startswith(b"\x89PNG")
        return
    page = content.decode()
    assert "data:image/svg+xml;base64," in page
    assert "cannot keep up" in page
    assert not re.search(r"(?:src|href)=['\"](?!data:)", page), "nothing is loaded"


def test_a_report_of_nothing_says_so(tmp_path: Path) -> None:
    path = tmp_path / "out.html"
    report.write(board(), path)
    assert "No interval was measured." in path.read_text(encoding="utf-8")


def test_a_report_must_be_html_or_png_in_a_directory(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"must end with \.html or \.png; got 'out\.pdf'"):
        report.check(Path("out.pdf"))
    with pytest.raises(InputError, match="must be a directory that exists"):
        report.check(tmp_path / "none" / "out.html")


@pytest.mark.parametrize(
    ("given", "address"),
    [
        *((True, "127.0.0.1:4190"), ("on", "127.0.0.1:4190"), (False, "off"), ("off", "off")),
        *((":0", "127.0.0.1:0"), ("5000", "127.0.0.1:5000"), (5000, "127.0.0.1:5000")),
        *(("0.0.0.0", "0.0.0.0:4190"), ("[::1]:80", "[::1]:80"), ("host:99", "host:99")),
    ],
)
def test_addresses_are_read_as_people_write_them(given: object, address: str) -> None:
    assert parse_address(given, "--dashboard") == address


@pytest.mark.parametrize("given", ["http://a:1", "a:b", "a:70000", "a b", "::", None, 1.5])
def test_other_addresses_are_refused(given: object) -> None:
    with pytest.raises(InputError, match="--dashboard: must be HOST:PORT"):
        parse_address(given, "--dashboard")


def test_a_port_that_is_taken_is_told() -> None:
    with Server(board(), "127.0.0.1:0") as server:
        taken = server.url.rpartition(":")[2].rstrip("/")
        with pytest.raises(InputError, match=rf"cannot be served at 127\.0\.0\.1:{taken}: "):
            Server(board(), f"127.0.0.1:{taken}")


@pytest.mark.parametrize("option", ["--dashboard", "--address"])
def test_a_host_that_cannot_be_is_told(option: str) -> None:
    told = rf"served at a\.\.b:80: .*; name another address, as in {option} 127\.0\.0\.1:4191"
    with pytest.raises(InputError, match=told):
        Server(board(), "a..b:80", option=option)


def test_a_report_of_rounds_says_rounds(tmp_path: Path) -> None:
    b = board(source="profile", across="round")
    b.add(tick(3, decision=added()))
    report.write(b, tmp_path / "out.html")
    page = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert "<td>round 3</td>" in page
    assert "<td>3 s</td>" not in page


def metrics_named_in(text: str) -> set[str]:
    return set(re.findall(r"\bsojourn_[a-z_0-9]+", text))


def test_grafana_and_alerts_use_metrics_that_exist(asked: TestClient) -> None:
    exist = {name for name, _, _ in samples(asked.get("/metrics").text)}
    exist |= {"sojourn_machines"}  # only of a pool with kinds of machines
    files = [*(ROOT / "deploy" / "grafana").glob("*")]
    assert {path.suffix for path in files} >= {".json", ".yaml"}
    for path in files:
        used = metrics_named_in(path.read_text(encoding="utf-8"))
        assert used, path
        assert used <= exist, path


def lightness(colour: str) -> float:
    """The relative luminance of a colour, as WCAG has it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((lightness(one), lightness(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize(("name", "place"), [("LIGHT", 0), ("DARK", 1)])
def test_colours_stand_out_from_their_ground(name: str, place: int) -> None:
    static = ROOT / "src" / "sojourn" / "dashboard" / "static"
    css = (static / "page.css").read_text(encoding="utf-8")
    grounds = {
        key: re.findall(rf"--{key}: (#[0-9a-f]+)", css)[place].replace("#fff", "#ffffff", 1)[:7]
        for key in ("card", "hush")
    }
    (found,) = re.findall(
        rf"const {name} = \[(.+?)\]", (static / "format.js").read_text(encoding="utf-8")
    )
    colours = re.findall(r"#[0-9a-f]{6}", found)
    assert len(colours) == 8
    assert name == "DARK" or tuple(colours) == report._COLOURS
    for colour in colours:
        assert contrast(colour, grounds["card"]) >= 3, colour
    for key in ("warn-fill", "bad-fill", "good-fill"):
        fill = re.findall(rf"--{key}: (#[0-9a-f]+)", css)[place]
        assert contrast(fill, grounds["hush"]) >= 3, key
