"""The stock exchange: its trades are those of a plain book that takes one order after the other,
and its statistics those of all trades taken together."""

import csv
import itertools
import json
import math
import pickle
import statistics
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import sse
from hypothesis import given
from hypothesis import strategies as st

import sojourn as sj
from sojourn.testing import Bench

Rows = list[tuple[str | None, ...]]


def plain_book(rows: Rows) -> list[dict[str, Any]]:
    """Trades by looking through all open orders for the best, again and again."""
    opened: dict[str, list[dict[str, Any]]] = defaultdict(list)
    trades = []
    for row in rows:
        time, name, symbol, side, price, quantity, action, trader = (*row, None)[:8]
        book = opened[str(symbol)]
        if action == "cancel":
            book[:] = [order for order in book if order["id"] != name]
            continue
        came = {
            "id": name,
            "side": side,
            "price": Decimal(str(price)),
            "left": Decimal(str(quantity)),
            "trader": trader,
        }
        while came["left"]:
            buys = side == "buy"
            facing = [
                order
                for order in book
                if order["side"] != side
                and (order["price"] <= came["price"] if buys else order["price"] >= came["price"])
            ]
            if not facing:
                break
            best = facing[0]  # of those at the same price, the first that came
            for order in facing:
                better = order["price"] < best["price"] if buys else order["price"] > best["price"]
                best = order if better else best
            traded = min(came["left"], best["left"])
            came["left"] -= traded
            best["left"] -= traded
            if not best["left"]:
                book.remove(best)
            trade = {
                "symbol": symbol,
                "price": float(best["price"]),
                "quantity": float(traded),
                "buy": name if buys else best["id"],
                "sell": best["id"] if buys else name,
                "time": float(str(time)),
            }
            if trader is not None or best["trader"] is not None:
                trade["buyer"] = trader if buys else best["trader"]
                trade["seller"] = best["trader"] if buys else trader
                trade["cash"] = float(best["price"] * traded)
            trades.append(trade)
        if came["left"]:
            book.append(came)
    return trades


def matched(rows: Rows) -> list[dict[str, Any]]:
    """Trades of the example's books."""
    books: dict[str, sse.Book] = {}
    trades = []
    for row in rows:
        order = sse.parsed(row)
        trades += books.setdefault(order.symbol, sse.Book()).take(order)
    return trades


def written(path: Path, rows: Rows, header: tuple[str, ...] = sse.FIELDS) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
    return path


def made_up(count: int) -> Rows:
    market = sse.Market(stocks=20, seed=3)
    return [market.order(number) for number in range(count)]


def test_made_up_orders_trade_as_in_a_plain_book() -> None:
    rows = made_up(4000)
    trades = matched(rows)
    assert len(trades) > 500
    assert trades == plain_book(rows)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.sampled_from(["buy", "sell"]),
            st.integers(1, 6),
            st.decimals("0.1", "5", places=1),
            st.integers(-30, 10),
            st.sampled_from(["anna", "bo"]),
        ),
        max_size=60,
    )
)
def test_any_orders_trade_as_in_a_plain_book(
    drawn: list[tuple[int, str, int, Decimal, int, str]],
) -> None:
    rows: Rows = []
    for number, (stock, side, price, quantity, earlier, trader) in enumerate(drawn):
        time, symbol = str(number), f"s{stock}"
        if 0 < -earlier <= number:  # of any stock, also one that is not its own
            name = str(number + earlier)
            rows.append((time, name, symbol, "", "", "", "cancel", trader))
        else:
            rows.append((time, str(number), symbol, side, str(price), str(quantity), "new", trader))
    assert matched(rows) == plain_book(rows)


def test_the_generator_has_the_shape_of_the_paper() -> None:
    rows = [row for row in made_up(4000) if row[-1] == "new"]
    sizes = [len(pickle.dumps(row, 5)) for row in rows]
    assert statistics.fmean(sizes) == pytest.approx(96, abs=10)
    trades = [len(json.dumps(trade)) for trade in matched(made_up(4000))]
    assert statistics.fmean(trades) == pytest.approx(160, abs=10)
    market = sse.Market(stocks=1000, seed=0)
    early, late = (
        statistics.mode(market.order(n)[2] for n in range(first, first + 3000))
        for first in (0, 50_000)
    )
    assert early != late  # popularity shifts
    assert sse.PER_HOUR == 8_000_000


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """Orders of a file on the bench: what reached the sinks."""

    def on_the_bench(rows: Rows, **settings: Any) -> Bench:
        header = (*sse.FIELDS, sse.TRADER) if rows and len(rows[0]) > len(sse.FIELDS) else None
        path = written(tmp_path / "orders.csv", rows, header or sse.FIELDS)
        bench = Bench(sse.topology(sse.Settings(str(path), out=str(tmp_path / "out"), **settings)))
        bench.read("orders")
        bench.run()
        return bench

    return on_the_bench


def by_symbol(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found = defaultdict(list)
    for row in rows:
        found[row["symbol"]].append(row)
    return dict(found)


def last(bench: Bench, what: str) -> dict[str, float]:
    rows = [row for row in bench.outputs["statistics"] if row["what"] == what]
    return {row["symbol"]: row["value"] for row in rows}


def test_trades_and_statistics_of_a_file(run: Any) -> None:
    rows = made_up(1500)
    bench = run(rows)
    trades = bench.outputs["trades"]
    assert by_symbol(trades) == by_symbol(plain_book(rows))
    for symbol, own in by_symbol(trades).items():
        prices = [trade["price"] for trade in own]
        volume = sum(trade["quantity"] for trade in own)
        cash = sum(trade["price"] * trade["quantity"] for trade in own)
        assert last(bench, "vwap")[symbol] == pytest.approx(cash / volume, abs=1e-5)
        mean = statistics.fmean(prices[-100:])
        assert last(bench, "moving average")[symbol] == pytest.approx(mean, abs=1e-5)
        returns = [math.log(b / a) for a, b in itertools.pairwise(prices)][-100:]
        if len(returns) > 1:
            expected = pytest.approx(statistics.stdev(returns), abs=1e-5)
            assert last(bench, "volatility")[symbol] == expected
    firsts = {symbol: own[0]["price"] for symbol, own in by_symbol(trades).items()}
    lasts = {symbol: own[-1]["price"] for symbol, own in by_symbol(trades).items()}
    index = 1000 * statistics.fmean(lasts[symbol] / firsts[symbol] for symbol in firsts)
    assert [r["value"] for r in bench.outputs["statistics"] if r["what"] == "composite index"][
        -1
    ] == pytest.approx(index, abs=1e-3)
    assert {row["what"] for row in bench.outputs["statistics"]} == {
        *(code.what for code in sse.STATISTICS),
        "spread",
        "composite index",
    }


def crossing(prices: list[float], quantity: int = 1, every_s: float = 1.0) -> Rows:
    """One trade at each price."""
    rows: Rows = []
    for number, price in enumerate(prices):
        for side in ("sell", "buy"):
            time, name = str(number * every_s), f"{side}{number}"
            rows.append((time, name, "x", side, str(price), str(quantity), "new"))
    return rows


def events(bench: Bench) -> list[tuple[str, float]]:
    return [(row["what"], row["time"]) for row in bench.outputs["events"]]


def test_events(run: Any) -> None:
    assert events(run(crossing([10, 10.2, 10.4, 10.6, 10.7]))) == [
        ("fast move", 1),
        ("price alarm", 3),
    ]
    assert ("halt on limit", 60) in events(run(crossing([10, 11], every_s=60)))
    big = [*crossing([10] * 3), *(("9", f"b{s}", "x", s, "10", "40", "new") for s in sse.OTHER)]
    assert events(run(big)) == [("large trade", 9)]
    spike = [*crossing([10]), *crossing([10] * 30, every_s=1.0)]
    later = [(str(float(t or 0) + 60), f"l{n}", *rest) for t, n, *rest in spike[2:]]
    assert [what for what, _ in events(run([*spike[:2], *later]))].count("volume spike") == 1


def test_a_trade_names_traders_and_cash_where_orders_have_them(run: Any) -> None:
    rows: Rows = [
        ("1", "a", "x", "sell", "10.5", "3", "new", "anna"),
        ("2.5", "b", "x", "buy", "11", "2", "new", "bo"),
    ]
    assert run(rows).outputs["trades"] == [
        {
            "symbol": "x",
            "price": 10.5,
            "quantity": 2,
            "buy": "b",
            "sell": "a",
            "time": 2.5,
            "buyer": "bo",
            "seller": "anna",
            "cash": 21,
        }
    ]


@pytest.mark.parametrize(
    ("row", "wrong"),
    [
        (("1", "", "x", "buy", "1", "1", "new"), "an order needs an id and a symbol"),
        (("1", "b", "", "buy", "1", "1", "new"), "an order needs an id and a symbol"),
        (("1", "b", "x", "bye", "1", "1", "new"), "side must be buy or sell; got 'bye'"),
        (("1", "b", "x", "buy", "nan", "1", "new"), "price must be a number above 0"),
        (("1", "b", "x", "buy", "1", "-1", "new"), "quantity must be a number above 0"),
        (("1", "b", "x", "buy", "1", "1" * 16, "new"), "quantity must be a number above 0"),
        (("1", "b", "x", "buy", "1", "1", "renew"), "action must be new or cancel"),
        (("soon", "b", "x", "buy", "1", "1", "new"), "time must be seconds, or a date"),
        (("1", "b", "x"), "action must be new or cancel"),
        (("1", "a", "x", "buy", "1", "1", "new"), "its id is that of an open order"),
    ],
)
def test_an_order_that_cannot_be_understood_is_left_out(
    run: Any, row: tuple[str, ...], wrong: str
) -> None:
    good: Rows = [
        ("2020-01-31T09:30:00", "a", "x", "buy", "1", "1", "new"),
        ("2020-01-31T09:31:00", "z", "x", "sell", "1", "1", "new"),
    ]
    bench = run([good[0], row, good[1]], on_error="skip")
    (failed,) = bench.failed
    assert wrong in str(failed.error)
    (trade,) = bench.outputs["trades"]
    assert (trade["buy"], trade["sell"], trade["time"]) == ("a", "z", "2020-01-31T09:31:00")


def test_a_file_without_the_right_header_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "orders.csv", [], ("time", "id", "symbol", "side", "price"))
    with pytest.raises(sj.InputError, match="it lacks quantity, action"):
        sse.topology(sse.Settings(str(path)))
    with pytest.raises(sj.InputError, match="cannot be read"):
        sse.topology(sse.Settings(str(tmp_path / "none.csv")))
