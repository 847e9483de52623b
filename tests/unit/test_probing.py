"""Measuring machines and links: figures from stamps, real sockets on loopback, a proxy that loses
packets, and what a cluster's tasks bring."""

import itertools
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import astuple, replace

import provisioning_fig2 as fig2
import provisioning_fig3 as fig3
import pytest
from proxy import Chunk, Packet, Proxy, Weather

from sojourn.errors import InputError
from sojourn.probing import cluster, figures, packets, ping, probes, work
from sojourn.probing.echo import Echo
from sojourn.probing.figures import Jitter, Link, RoundTrips, Stream

MS = 1_000_000
TOKEN = bytes(range(16))
SHORT = probes.Plan(seconds=0.04, patience_s=60.0)


@pytest.fixture
def target() -> Iterator[probes.Target]:
    with Echo(TOKEN) as echo:
        yield probes.Target(*echo.address, TOKEN)


def test_round_trips_have_their_percentiles_and_what_was_lost() -> None:
    found = figures.round_trips([n / 1000 for n in range(101)], 202)
    assert astuple(found) == pytest.approx((101, 0.5, 0.05, 0.05, 0.095, 0.099, 0.1))


def test_jitter_is_of_successive_transits_and_needs_no_common_clock() -> None:
    sent = [n * 10 * MS for n in range(1, 6)]
    transits = [5, 7, 4, 30, 5]  # ms
    for ahead_ms in (0, -100_000, 3_600_000):  # by which the receiver's clock is
        came = [s + (t + ahead_ms) * MS for s, t in zip(sent, transits, strict=True)]
        found = figures.stream(100_000, sent, came)
        assert (found.rate_bps, found.sent, found.lost) == (100_000, 5, 0.0)
        assert found.jitter is not None
        assert astuple(found.jitter) == pytest.approx((0.014, 0.026, 0.026, 0.2))


def test_packets_that_are_lost_count_as_lost_and_not_as_late() -> None:
    sent = [n * 100 * MS for n in range(1, 11)]
    came = [s + 5 * MS for s in sent]
    came[3] = came[7] = 0
    found = figures.stream(10_000, sent, came)
    assert found.lost == pytest.approx(0.2)
    assert found.jitter == Jitter(0.0, 0.0, 0.0, 0.0)
    for left in (0, 1):
        assert figures.stream(10_000, sent, [0] * (10 - left) + came[10 - left :]) == Stream(
            10_000, 10, 1 - left / 10, None
        )


def test_a_packet_is_late_once_the_next_one_is_expected() -> None:
    sent = [n * 10 * MS for n in range(1, 5)]
    for behind_ns, late in ((10 * MS, 0.0), (10 * MS + 1, 0.25)):
        came = [*(s + MS for s in sent[:3]), sent[3] + MS + behind_ns]
        found = figures.stream(100_000, sent, came).jitter
        assert found is not None
        assert found.late == late


def test_rates_are_kilobits_as_packets_a_second() -> None:
    assert [figures.packets(rate, 10) for rate in probes.RATES_BPS] == [100, 1000, 10_000]
    assert figures.packets(10_000, 0.01) == 2
    assert len(packets.packet(TOKEN, 1, 2)) * 8 == 1000


def test_work_counts_where_its_time_went() -> None:
    assert figures.each_second([0.5, 1.0, 3.0], 3.0) == pytest.approx((2.0, 0.5, 0.5))
    assert figures.each_second([0.1, 0.2, 0.4], 0.4) == pytest.approx((7.5,))
    (rate,) = work.capacity(0.01)
    assert rate > 0
    assert work.piece() == work.piece()


@pytest.mark.parametrize("machines", range(2, 10))
def test_in_turns_every_machine_measures_its_link_to_every_other_once(machines: int) -> None:
    order = figures.turns(machines)
    for pairs in order:
        busy = list(itertools.chain.from_iterable(pairs))
        assert len(set(busy)) == len(busy)
    links = list(itertools.chain.from_iterable(order))
    assert sorted(links) == list(itertools.permutations(range(machines), 2))
    assert len(order) == 2 * (machines - 1 + machines % 2)


def test_requests_of_icmp_are_well_formed_and_only_their_answer_counts() -> None:
    assert ping.checksum(bytes.fromhex("0001f203f4f5f6f7")) == 0xFFFF - 0xDDF2  # RFC 1071
    asked = ping.request(77, 5, TOKEN)
    assert ping.checksum(asked) == 0
    answer = bytes([0]) + asked[1:]
    header = bytes([0x45]) + bytes(19)
    for raw, data in ((False, answer), (True, header + answer)):
        assert ping.is_answer(data, 5, TOKEN, raw)
        assert not ping.is_answer(data, 6, TOKEN, raw)
        assert not ping.is_answer(data, 5, bytes(16), raw)
        assert not ping.is_answer(data[:-1], 5, TOKEN, raw)
    assert not ping.is_answer(header + asked, 5, TOKEN, True)  # what loopback shows of it
    assert not ping.is_answer(b"", 5, TOKEN, True)


def test_a_link_on_loopback(target: probes.Target) -> None:
    told: list[str] = []
    found = probes.link("a", "b", target, SHORT, told.append)
    assert (found.sender, found.receiver) == ("a", "b")
    assert found.application.count in (1, 2)
    assert [stream.sent for stream in found.streams] == [2, 4, 40]
    assert [stream.lost for stream in found.streams] == [0.0, 0.0, 0.0]
    assert found.throughput_bps > 0
    assert told == [
        "a → b: round trips …",
        "a → b: jitter at 10 kbps …",
        "a → b: jitter at 100 kbps …",
        "a → b: jitter at 1000 kbps …",
        "a → b: throughput …",
    ]


def test_packets_of_strangers_and_copies_do_not_count(target: probes.Target) -> None:
    greeting = packets.Greeting(TOKEN, packets.Greeting.STREAM, 9, 2, 120_000)
    good = [packets.packet(TOKEN, 9, number) for number in (0, 1)]
    strange = [
        packets.packet(bytes(16), 9, 1),
        packets.packet(TOKEN, 8, 1),
        packets.packet(TOKEN, 9, 2),
        good[1][:-1],
        good[1] + b"\0",
        b"",
    ]
    with (
        target.connected(greeting) as connection,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        connection.sendall(packets.DONE)  # if others counted, it would answer before the last one
        for data in (*strange, good[0], good[0], good[1]):
            sender.sendto(data, (target.host, target.port))
        came = struct.unpack("!2q", packets.exactly(connection, 16))
    assert 0 < came[0] < came[1]


def test_what_does_not_come_is_not_waited_for_without_end(target: probes.Target) -> None:
    greeting = packets.Greeting(TOKEN, packets.Greeting.STREAM, 9, 3, 10)
    with target.connected(greeting) as connection:
        connection.sendall(packets.DONE)
        assert packets.exactly(connection, 24) == bytes(24)


@pytest.mark.parametrize(
    "greeting",
    [
        packets.Greeting(bytes(16), packets.Greeting.TRIPS),
        packets.Greeting(TOKEN, b"?"),
        packets.Greeting(TOKEN, packets.Greeting.STREAM, 1, 2**31),
    ],
)
def test_strangers_are_hung_up_on(target: probes.Target, greeting: packets.Greeting) -> None:
    with pytest.raises(InputError, match="hung up; the token must be"), target.connected(greeting):
        pass


def test_a_server_that_closes_hangs_up_on_all() -> None:
    echo = Echo(TOKEN)
    target = probes.Target(*echo.address, TOKEN)
    with target.connected(packets.Greeting(TOKEN, packets.Greeting.TRIPS)) as connection:
        silent = socket.create_connection(echo.address)
        connection.sendall(bytes(packets.TRIP_BYTES))
        assert packets.exactly(connection, packets.TRIP_BYTES) == bytes(packets.TRIP_BYTES)
        echo.close()
        assert packets.exactly(connection, 1) == b""
        silent.close()
    with pytest.raises(InputError, match=f"127.0.0.1:{target.port}: must be where"):
        probes.throughput(target, 0.01)


def test_a_probe_whose_server_goes_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet_and_go() -> None:
            connection, _ = listener.accept()
            with connection:
                packets.exactly(connection, packets.Greeting.FORM.size)
                connection.sendall(packets.READY)
                packets.exactly(connection, 1)

        thread = threading.Thread(target=greet_and_go)
        thread.start()
        host, port = listener.getsockname()
        target = probes.Target(host, port, TOKEN)
        with pytest.raises(InputError, match="no longer answers"):
            probes.stream(target, 1_000_000, SHORT)
        thread.join()


def test_an_address_that_is_taken_is_refused(target: probes.Target) -> None:
    with pytest.raises(InputError, match="must be an address of this machine with a free port"):
        Echo(TOKEN, target.host, target.port)


@pytest.mark.parametrize("text", ["7000", ":7000", "host:", "host:port", "host:65536"])
def test_an_address_has_a_host_and_a_port(text: str) -> None:
    with pytest.raises(InputError, match="--to: must be ADDRESS:PORT, such as"):
        packets.parse_address(text, "--to")
    assert packets.parse_address("host:0", "--to") == ("host", 0)


def test_where_icmp_is_not_allowed_that_is_told(
    target: probes.Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    with monkeypatch.context() as patched:
        patched.setattr("socket.socket", refuse)
        with pytest.raises(ping.Refused, match=r"not allowed here \(Operation not permitted\)"):
            ping.Ping("127.0.0.1")
    monkeypatch.setattr(ping, "_socket", lambda: (_ for _ in ()).throw(ping.Refused("no ICMP")))
    network, application = probes.round_trips(target, 0.01)
    assert network == "no ICMP"
    assert application.count == 1


class Silent:
    """A machine that answers no ping."""

    def __init__(self, _host: str) -> None:
        self.asked = 0

    def trip(self) -> None:
        self.asked += 1

    def __enter__(self) -> "Silent":
        return self

    def __exit__(self, *_: object) -> None:
        assert self.asked == 3


def test_a_machine_that_answers_no_ping_is_not_asked_for_ever(
    target: probes.Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "Ping", Silent)
    monkeypatch.setattr(probes, "_paced", lambda _interval, _count, _most: range(5))
    network, application = probes.round_trips(target, 1.0)
    assert network == "none of 3 pings was answered"
    assert application.count == 5


def test_through_a_proxy_exactly_what_it_lost_is_missing() -> None:
    weather = Weather(0.002, 0.003, 0.3, seed=4)
    with Echo(TOKEN) as echo, Proxy(echo.address, weather) as proxy:
        target = probes.Target(*proxy.address, TOKEN)
        sent_ns, came_ns = probes.stamps(target, 1_000_000, probes.Plan(0.06, 3.0))
        done = {packet.number: packet.delayed_s for packet in proxy.packets}
    assert sorted(done) == list(range(60))
    assert [not came for came in came_ns] == [done[n] is None for n in range(60)]
    assert 0 < came_ns.count(0) < 60
    for number, (sent, came) in enumerate(zip(sent_ns, came_ns, strict=True)):
        if came:
            delayed_s = done[number]
            assert delayed_s is not None
            assert (came - sent) / 1e9 >= delayed_s >= 0.002


def test_through_a_proxy_a_round_trip_takes_both_delays() -> None:
    with Echo(TOKEN) as echo, Proxy(echo.address, Weather(0.004, 0.001)) as proxy:
        target = probes.Target(*proxy.address, TOKEN)
        _, application = probes.round_trips(target, 0.06)
        assert probes.throughput(target, 0.01) > 0
        done = fig3.done_s([chunk for chunk in proxy.chunks if chunk.size == packets.TRIP_BYTES])
    assert len(done) == application.count
    assert application.mean_s >= sum(done) / len(done) >= 0.008


def test_machines_are_named_by_their_hosts() -> None:
    assert cluster.named(["b:2", "a:9", "b:1", "a:9"]) == {"a:9": "a", "b:1": "b#1", "b:2": "b#2"}


TRIPS = RoundTrips(1, 0.0, 0.1, 0.1, 0.1, 0.1, 0.1)


def test_parts_of_tasks_become_a_report() -> None:
    names = {"a:1": "a", "b:2": "b"}
    there, back = (
        Link(one, other, "no ICMP", TRIPS, (), 1e9) for one, other in (("a", "b"), ("b", "a"))
    )
    failed = ("a", "b", "for a reason")
    parts = [
        (0.0, cluster.Part("b:2", (1.0, 2.0), back)),
        (0.0, cluster.Part("a:1", (10.0, 20.0))),
        (0.0, cluster.Part("a:1", (1.0, 2.0))),
        (7.0, cluster.Part("a:1", (3.0, 4.0), there)),
        (7.0, cluster.Part("b:2", (5.0, 6.0), failed=failed)),
    ]
    found = cluster.reported(names, ["a:1", "b:2", "a:1"], parts, 4.0)
    assert found.links == (there, back)
    assert found.failed == (failed,)
    assert found.machines == (
        figures.Machine("a", 2, (0.0, 2.0, 7.0, 9.0), (11.0, 22.0, 3.0, 4.0)),
        figures.Machine("b", 1, (0.0, 2.0, 7.0, 9.0), (1.0, 2.0, 5.0, 6.0)),
    )
    with pytest.raises(InputError, match="c:3: must have been there from the beginning"):
        cluster.reported(names, ["a:1"], [(0.0, cluster.Part("c:3", ()))], 4.0)


def test_a_task_measures_its_link_or_says_why_not(target: probes.Target) -> None:
    here, there = "127.0.0.1:1", "127.0.0.1:2"
    names = cluster.named([here, there])
    task = cluster.TakePart(SHORT, TOKEN, names, {here: there})
    found = task.part(here, (1.0,), {there: target.port})
    assert found.link is not None
    assert (found.link.sender, found.link.receiver) == ("127.0.0.1#1", "127.0.0.1#2")
    assert task.part(there, (1.0,), {}) == cluster.Part(there, (1.0,))
    gone = task.part(here, (1.0,), {})
    assert gone.failed == ("127.0.0.1#1", "127.0.0.1#2", "it is gone")
    stranger = replace(task, token=bytes(16)).part(here, (1.0,), {there: target.port})
    assert stranger.failed is not None
    assert "hung up" in stranger.failed[2]


class Driver:
    """A driver's context, and Java behind it, that knows more executors each time it is asked."""

    master = "spark://m:7077"

    def __init__(self, *executors: int, **conf: str) -> None:
        self.executors, self.conf = list(executors), conf
        self._jsc = self.sparkContext = self

    def sc(self) -> "Driver":
        return self

    statusTracker = resourceProfileManager = getConf = sc  # noqa: N815

    def getExecutorInfos(self) -> list[None]:  # noqa: N802
        found = self.executors.pop(0) if len(self.executors) > 1 else self.executors[0]
        return [None] * (1 + found)

    def defaultResourceProfile(self) -> str:  # noqa: N802
        return "default"

    def maxNumConcurrentTasks(self, profile: str) -> int:  # noqa: N802
        assert profile == "default"
        return 7

    def get(self, key: str, default: str) -> str:
        return self.conf.get(key.rpartition(".")[2], default)


def test_machines_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_LOOK_S", "_SETTLED_S"):
        monkeypatch.setattr(cluster, name, 0.0)
    driver = Driver(0, 1, 3)
    assert cluster.await_slots(driver, 3) == 7
    assert driver.executors == [3]
    assert cluster.await_slots(Driver(0, 1, 2), None) == 7
    monkeypatch.setattr(cluster, "_MOST_S", 0.0)
    for wanted, least in ((None, 2), (5, 5)):
        with pytest.raises(InputError, match=f"at least {least} executors to be measured; has 1"):
            cluster.await_slots(Driver(1), wanted)


def test_executors_that_come_and_go_are_refused() -> None:
    with pytest.raises(InputError, match="set it to false"):
        cluster.measured(Driver(2, enabled="true"), SHORT, None, lambda _: None)


def test_what_a_proxy_did_is_told_from_its_own_notes() -> None:
    passed = [Packet(2, 0, 0.03), Packet(0, 0, 0.01), Packet(1, 0, None), Packet(3, 0, 0.015)]
    found = fig2.done(passed, 100_000)
    assert astuple(found) == pytest.approx((0.0175, 0.02, 1 / 3, 0.25, 4))
    chunks = [Chunk(True, 64, 0.1), Chunk(True, 29, 9.0), Chunk(False, 64, 0.2)]
    assert fig3.done_s(chunks) == [pytest.approx(0.3)]


def streams(measured_s: float, done_s: float) -> list[fig2.Point]:
    """Three of one sender, of whom 10 ms of jitter were asked."""
    done = fig2.Done(done_s, 0.05, 0.5, 0.1, 10_000)
    jitter = Jitter(measured_s, 0.05, 0.05, 0.5)
    weather = Weather(0.1, 0.01, 0.1)
    return [
        fig2.Point("far", weather, done, Stream(rate, 10_000, 0.1, jitter))
        for rate in probes.RATES_BPS
    ]


@pytest.mark.parametrize(
    ("measured_s", "done_s", "holds"),
    [(0.0104, 0.01, True), (0.0106, 0.01, False), (0.02, 0.02, None), (0.01, 0.0104, True)],
)
def test_jitter_is_judged_against_what_the_proxy_did(
    measured_s: float, done_s: float, holds: bool | None
) -> None:
    assert fig2.judged(streams(measured_s, done_s)).holds is holds


@pytest.mark.parametrize(
    ("measured_s", "done_s", "holds"),
    [(0.104, 0.1, True), (0.106, 0.1, False), (0.2, 0.2, None)],
)
def test_round_trips_are_judged_against_what_the_proxy_did(
    measured_s: float, done_s: float, holds: bool | None
) -> None:
    of = RoundTrips(100, 0.0, *[measured_s] * 5)
    point = fig3.Point(0.1, 0.001, (done_s, done_s, done_s), of, "no ICMP")
    assert fig3.judged([point]).holds is holds
