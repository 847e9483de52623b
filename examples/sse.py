"""A stock exchange (Elasticutor, SIGMOD 2019, §5.4): limit orders become trades, which eleven
operators watch.

    python examples/sse.py [--orders FILE.csv | --count 20000 --seed 0] [--speed 1] [--out out/sse]
    sojourn run examples/sse.py --max-sojourn 100ms

    orders ─→ transact ─┬→ trades
                        ├→ six statistics ─→ statistics
                        └→ five events ─→ events

`transact`, keyed by stock, keeps each stock's book of open orders, and matches by price and then by
time: who came first at the best price trades first, at the price of the order that was there. A
file has the columns time, id, symbol, side (buy or sell), price, quantity, action (new or cancel),
and perhaps trader. Trades go to `--out` as JSON lines, what the other operators say to folders in
it. Without a file, orders are made up: 8 million an hour times `--speed`, in bursts, and the
popularity of stocks shifts. Moving average, composite index and price alarm are the paper's, the
other operators are ours.
"""

import argparse
import csv
import heapq
import itertools
import math
import random
from bisect import bisect
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import sojourn as sj

FIELDS = ("time", "id", "symbol", "side", "price", "quantity", "action")
TRADER = "trader"
OTHER = {"buy": "sell", "sell": "buy"}
PER_HOUR = 8_000_000
BURSTS = ((10.0, 1.0), (2.0, 3.0), (8.0, 0.5))  # seconds, and times the usual rate
DIGITS = 15  # of a number; more would not survive in JSON

Row = tuple[str | None, ...]  # an order as it was read, in the order of FIELDS and TRADER
Trade = dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """The orders, and where results go."""

    orders: str | None = None
    count: int | None = 20_000
    speed: float = 1.0
    seed: int = 0
    stocks: int = 1000
    out: str = "out/sse"
    on_error: sj.OnError = "fail"
    shards: int = 1024
    processors: int = 2

    def check(self) -> None:
        """Refuse what makes no sense."""
        for what, value, fine, rule in (
            ("count", self.count, self.count is None or self.count >= 1, "at least 1"),
            ("speed", self.speed, 0 < self.speed < math.inf, "above 0"),
            ("stocks", self.stocks, 1 <= self.stocks <= 9999, "from 1 to 9999"),
        ):
            if not fine:
                raise sj.InputError(f"{what} must be {rule}; got {value}")


# orders


@dataclass(frozen=True)
class Order:
    """A checked one. `time` is as it was read, `at_s` in seconds."""

    time: Any
    at_s: float
    id: str
    symbol: str
    side: str
    price: Decimal
    quantity: Decimal
    cancel: bool
    trader: str | None


def parsed(row: Row) -> Order:
    """The order of a row. ValueError says what is wrong with it."""
    time, name, symbol, side, price, quantity, action, trader = (*row, None)[:8]
    if not name or not symbol:
        raise ValueError(f"an order needs an id and a symbol; got {row!r:.100}")
    if action not in ("new", "cancel"):
        raise ValueError(f"order {name}: action must be new or cancel; got {action!r}")
    cancel = action == "cancel"
    if side not in OTHER and not cancel:
        raise ValueError(f"order {name}: side must be buy or sell; got {side!r}")
    shown, at_s = time_of(name, time)
    numbers = [
        Decimal(0) if cancel else positive(name, what, text)
        for what, text in (("price", price), ("quantity", quantity))
    ]
    return Order(shown, at_s, name, symbol, side or "", numbers[0], numbers[1], cancel, trader)


def positive(name: str, what: str, text: str | None) -> Decimal:
    """A number above zero."""
    try:
        found = Decimal(text or "")
    except InvalidOperation:
        found = Decimal("nan")
    if not found.is_finite() or found <= 0 or len(found.as_tuple().digits) > DIGITS:
        rule = f"a number above 0 of at most {DIGITS} digits"
        raise ValueError(f"order {name}: {what} must be {rule}; got {text!r}")
    return found


def time_of(name: str, text: str | None) -> tuple[Any, float]:
    """A time as it should be shown, and in seconds."""
    try:
        at_s = float(text or "")
        if math.isfinite(at_s):
            return shown(Decimal(text or "")), at_s
    except (ValueError, InvalidOperation):
        pass
    try:
        return text, datetime.fromisoformat(text or "").timestamp()
    except ValueError:
        rule = "seconds, or a date and time as in 2020-01-31T09:30:00"
        raise ValueError(f"order {name}: time must be {rule}; got {text!r}") from None


def shown(number: Decimal) -> int | float:
    """A number as JSON has it."""
    return int(number) if number == number.to_integral_value() else float(number)


def symbol_of(row: Row) -> str:
    """The key; also of a row that lacks it, which is refused later."""
    return row[2] or ""


# matching


@dataclass
class Resting:
    """An order that waits in the book, and what is left of it."""

    number: int  # in the order of arrival
    side: str
    price: Decimal
    quantity: Decimal
    trader: str | None


@dataclass
class Book:
    """The open orders of a stock. Those at the head of `sides` are the best; what is no longer open
    is skipped there."""

    resting: dict[str, Resting] = field(default_factory=dict)
    sides: dict[str, list[tuple[Decimal, int, str]]] = field(
        default_factory=lambda: {"buy": [], "sell": []}
    )
    arrived: int = 0

    def take(self, order: Order) -> list[Trade]:
        """The trades that an order makes; what is left of it waits in the book."""
        if order.cancel:
            self.resting.pop(order.id, None)  # it may have been traded meanwhile
            return []
        if order.id in self.resting:
            raise ValueError(f"order {order.id}: its id is that of an open order")
        trades, left = [], order.quantity
        while left and (found := self._best(OTHER[order.side])) is not None:
            name, best = found
            buys = order.side == "buy"
            if order.price < best.price if buys else order.price > best.price:
                break
            quantity = min(left, best.quantity)
            left -= quantity
            best.quantity -= quantity
            if not best.quantity:
                del self.resting[name]
            trades.append(trade_of(order, name, best, quantity))
        if left:
            self.arrived += 1
            self.resting[order.id] = Resting(
                self.arrived, order.side, order.price, left, order.trader
            )
            rank = -order.price if order.side == "buy" else order.price
            heapq.heappush(self.sides[order.side], (rank, self.arrived, order.id))
            self._tidy(order.side)
        return trades

    def best(self, side: str) -> Decimal | None:
        """The best price of a side."""
        found = self._best(side)
        return None if found is None else found[1].price

    def _best(self, side: str) -> tuple[str, Resting] | None:
        heap = self.sides[side]
        while heap:
            _, number, name = heap[0]
            found = self.resting.get(name)
            if found is not None and found.number == number:
                return name, found
            heapq.heappop(heap)
        return None

    def _tidy(self, side: str) -> None:
        """Forget what is no longer open once that is most of a side."""
        heap = self.sides[side]
        if len(heap) > 2 * len(self.resting) + 16:
            heap[:] = [
                (rank, number, name)
                for rank, number, name in heap
                if name in self.resting and self.resting[name].number == number
            ]
            heapq.heapify(heap)


def trade_of(order: Order, name: str, best: Resting, quantity: Decimal) -> Trade:
    """One trade: at the price of the order that was there, at the time of the one that came."""
    buys = order.side == "buy"
    trade: Trade = {
        "symbol": order.symbol,
        "price": shown(best.price),
        "quantity": shown(quantity),
        "buy": order.id if buys else name,
        "sell": name if buys else order.id,
        "time": order.time,
    }
    if order.trader is not None or best.trader is not None:
        trade["buyer"] = order.trader if buys else best.trader
        trade["seller"] = best.trader if buys else order.trader
        trade["cash"] = shown(best.price * quantity)
    return trade


class Transact(sj.Operator):
    """The book of each stock. Emits trades; best prices that have changed go to `quotes`."""

    def process(self, row: Row) -> Iterator[Any]:
        order = parsed(row)
        book = self.state.setdefault(order.symbol, Book())
        before = book.best("buy"), book.best("sell")
        yield from book.take(order)
        bid, ask = book.best("buy"), book.best("sell")
        if (bid, ask) != before and bid is not None and ask is not None:
            quote = {"symbol": order.symbol, "bid": shown(bid), "ask": shown(ask)}
            yield sj.Output("quotes", quote | {"time": order.time})


# statistics and events: a class each, with what it keeps of a stock


def seconds(trade: Trade) -> float:
    """The time of a trade."""
    time = trade["time"]
    return datetime.fromisoformat(time).timestamp() if isinstance(time, str) else float(time)


class Watch(sj.Operator):
    """Keeps something of each stock, and says something about a trade, or nothing."""

    what = ""

    def start(self) -> Any:
        """What is kept of a stock that was never traded."""
        return []

    def watch(self, kept: Any, trade: Trade) -> tuple[Any, float | None]:
        """What is kept now, and what there is to say."""
        raise NotImplementedError

    def process(self, trade: Trade) -> Iterator[dict[str, Any]]:
        kept = self.state.get(self.key)
        kept, value = self.watch(self.start() if kept is None else kept, trade)
        self.state[self.key] = kept
        if value is not None:
            yield {
                "what": self.what,
                "symbol": trade["symbol"],
                "value": round(value, 6),
                "time": trade["time"],
            }


class MovingAverage(Watch):
    """The mean price of the last hundred trades."""

    what, last = "moving average", 100

    def watch(self, kept: Any, trade: Trade) -> tuple[Any, float | None]:
        prices = [*kept, trade["price"]][-self.last :]
        return prices, sum(prices) / len(prices)


class CompositeIndex(Watch):
    """How all stocks stand against their first prices, which make 1000 points. It has one key."""

    what = "composite index"

    def start(self) -> Any:
        return {}, 0.0

    def watch(self, kept: Any, trade: Trade) -> tuple[Any, float | None]:
        stocks, total = kept
        first, last = stocks.get(trade["symbol"], (trade["price"], 0.0))
        total += trade["price"] / first - (last / first)
        stocks[trade["symbol"]] = first, trade["price"]
        return (stocks, total), 1000 * total / len(stocks)


class Vwap(Watch):
    """The mean price, weighted by volume."""

    what = "vwap"

    def start(self) -> Any:
        return 0.0, 0.0

    def watch(self, kept: Any, trade: Trade) -> tuple[Any, float | None]:
        cash, volume = kept[0] + trade["price"] * trade["quantity"], kept[1] + trade["quantity"]
        return (cash, volume), cash / volume


class Volume(Watch):
    """The volume of the present minute."""

    what = "volume"

    def start(self) -> Any:
        return -1, 0.0

    def watch(self, kept: Any, trade: Trade) -> tuple[Any, float | None]:
        minute = seconds(trade) // 60
        volume = trade["quantity"] + (kept[1] if kept[0] == minute else 0.0)
        return (minute, volume), volume


class Spread(sj.Operator):
    """Best price asked less best price bid, in hundredths of a per cent of their mean."""

    def process(self, quote: dict[str, Any]) -> Iterator[dict[str, Any]]:
        bid, ask = quote["bid"], quote["ask"]
        value = round(2e4 * (ask - bid) / (ask + bid), 6)
        if self.state.get(self.key) != value:
            self.state[self.key] = value
            symbol, time = quote["symbol"], quote["time"]
            yield {"what": "spread", "symbol": symbol, "value": value, "time": time}


class Volatility(Watch):
    """The standard deviation of the last hundred returns."""

    what, last = "volatility", 100

    def watch(self, kept: Any, trade: Trade) -> tuple[Any, float | None]:
        prices = [*kept, trade["price"]][-self.last - 1 :]
        returns = [math.log(b / a) for a, b in itertools.pairwise(prices)]
        if len(returns) < 2:
            return prices, None
        mean = sum(returns) / len(returns)
        return prices, math.sqrt(sum((r - mean) ** 2 for r in returns) / (len(returns) - 1))


class PriceAlarm(Watch):
    """The price has gone up or down by a twentieth since the last alarm, or since the first."""

    what, share = "price alarm", 0.05

    def start(self) -> Any:
        return None

    def watch(self, kept: Any, trade: Trade) -> tuple[Any, float | None]:
        price = trade["price"]
        if kept is None or abs(price / kept - 1) < self.share:
            return price if kept is None else kept, None
        return price, price


class VolumeSpike(Watch):
    """A minute has five times the mean volume of those before; told once a minute."""

    what, times = "volume spike", 5.0

    def start(self) -> Any:
        return -1, 0.0, 0, 0.0, False  # the minute, its volume; minutes before, their volume; told

    def watch(self, kept: Any, trade: Trade) -> tuple[Any, float | None]:
        minute, volume, minutes, before, told = kept
        now = seconds(trade) // 60
        if now != minute and minute >= 0:
            minutes, before, volume, told = minutes + 1, before + volume, 0.0, False
        volume += trade["quantity"]
        spikes = bool(minutes) and not told and volume > self.times * before / minutes
        return (now, volume, minutes, before, told or spikes), volume if spikes else None


class LargeTrade(Watch):
    """A trade of ten times the mean volume of those before."""

    what, times = "large trade", 10.0

    def start(self) -> Any:
        return 0, 0.0

    def watch(self, kept: Any, trade: Trade) -> tuple[Any, float | None]:
        count, volume = kept
        large = count > 0 and trade["quantity"] > self.times * volume / count
        return (count + 1, volume + trade["quantity"]), trade["quantity"] if large else None


class FastMove(Watch):
    """The price has changed by a hundredth within ten seconds; told once in that time."""

    what, share, within_s = "fast move", 0.01, 10.0

    def start(self) -> Any:
        return deque(), -math.inf

    def watch(self, kept: Any, trade: Trade) -> tuple[Any, float | None]:
        prices, told_s = kept
        now_s, price = seconds(trade), trade["price"]
        prices.append((now_s, price))
        while prices[0][0] < now_s - self.within_s:
            prices.popleft()
        moved = price / prices[0][1] - 1
        tells = abs(moved) >= self.share and now_s - told_s >= self.within_s
        return (prices, now_s if tells else told_s), moved if tells else None


class HaltOnLimit(Watch):
    """The price has gone a tenth from the first of all, where trading would be halted; told again
    only once it has come back."""

    what, share = "halt on limit", 0.1

    def start(self) -> Any:
        return None, False

    def watch(self, kept: Any, trade: Trade) -> tuple[Any, float | None]:
        first, halted = kept
        first = trade["price"] if first is None else first
        beyond = abs(trade["price"] / first - 1) >= self.share
        return (first, beyond), trade["price"] if beyond and not halted else None


STATISTICS = (MovingAverage, Vwap, Volume, Volatility)
EVENTS = (PriceAlarm, VolumeSpike, LargeTrade, FastMove, HaltOnLimit)


# where orders come from


class Market:
    """Made-up orders. Few stocks get most of them; which ones, shifts. Now and then everybody wants
    one stock. One in ten cancels an earlier order."""

    shift, burst = 5000, 2000  # orders

    def __init__(self, stocks: int, seed: int) -> None:
        self.stocks, self.seed = stocks, seed
        self.cumulative = list(itertools.accumulate(1 / rank for rank in range(1, stocks + 1)))

    def order(self, number: int) -> Row:
        """The order of that number, always the same."""
        draw = self._draw(number)
        stock = self._stock(number, draw)
        time = f"{number * 3600 / PER_HOUR:.4f}"
        if number and draw.random() < 0.1:
            earlier = draw.randrange(max(0, number - 2000), number)
            stock = self._stock(earlier, self._draw(earlier))
            return time, self._id(earlier), self._symbol(stock), None, None, None, "cancel"
        trend = 1 + 0.08 * math.sin(number / 20_000 + stock)
        price = (5 + stock % 95) * trend * (1 + draw.gauss(0, 0.004))
        side = "buy" if draw.random() < 0.5 else "sell"
        quantity = str(100 * min(500, round(draw.paretovariate(1.5))))
        shown_price = f"{max(0.01, price):.2f}"
        return time, self._id(number), self._symbol(stock), side, shown_price, quantity, "new"

    def _draw(self, number: int) -> random.Random:
        return random.Random(self.seed * 1_000_003 + number)

    def _stock(self, number: int, draw: random.Random) -> int:
        rank = bisect(self.cumulative, draw.random() * self.cumulative[-1])
        place = number // self.burst
        if place % 5 == 4 and draw.random() < 0.3:
            return place * 7919 % self.stocks
        return (rank + number // self.shift * 37) % self.stocks

    def _symbol(self, stock: int) -> str:
        return f"{600_000 + stock}"

    def _id(self, number: int) -> str:
        return f"{number:032d}"  # long enough for orders of 96 bytes and trades of 160


def rows_of(path: Path) -> Callable[[], Iterable[Row]]:
    """A function that reads the orders of a file from its first."""
    header = next(csv.reader(_lines(path)), [])
    missing = [name for name in FIELDS if name not in header]
    if missing:
        raise sj.InputError(
            f"{path}: its header must have {', '.join(FIELDS)}, and may have {TRADER}; "
            f"it lacks {', '.join(missing)}"
        )
    wanted = [name for name in (*FIELDS, TRADER) if name in header]

    def rows() -> Iterator[Row]:
        for row in csv.DictReader(_lines(path)):
            yield tuple(row[name] for name in wanted)

    return rows


def _lines(path: Path) -> Iterator[str]:
    try:
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            yield from file
    except OSError as error:
        raise sj.InputError(f"{path}: cannot be read: {error.strerror}") from None


def source(settings: Settings) -> sj.Source[Row]:
    """Orders of a file as quickly as they can be taken; made-up ones at their own pace."""
    if settings.orders is not None:
        return sj.sources.iterable(rows_of(Path(settings.orders).resolve()))
    usual = PER_HOUR / 3600 * settings.speed
    rate = tuple((span_s, usual * times) for span_s, times in BURSTS) * 500
    market = Market(settings.stocks, settings.seed)
    return sj.sources.paced(market.order, rate=rate, count=settings.count, seed=settings.seed)


DEFAULTS = Settings()


def topology(settings: Settings = DEFAULTS) -> sj.Topology:
    """orders → transact → trades, statistics and events."""
    settings.check()
    t = sj.Topology("sse")
    keyed: dict[str, Any] = {"shards": settings.shards, "processors": settings.processors}

    def symbol(value: dict[str, Any]) -> str:
        return str(value["symbol"])

    orders = t.source("orders", source(settings))
    trades = t.operator(
        "transact", Transact, orders, key=symbol_of, on_error=settings.on_error, **keyed
    )
    out = Path(settings.out)
    t.sink("trades", sj.sinks.jsonl(out), trades)
    statistics: list[Any] = [
        t.operator(_name(code), code, trades, key=symbol, shards=settings.shards)
        for code in STATISTICS
    ]
    quotes: Any = trades["quotes"]
    statistics.append(t.operator("spread", Spread, quotes, key=symbol, shards=settings.shards))
    statistics.append(t.operator("composite_index", CompositeIndex, trades, key=lambda _trade: 0))
    events = [
        t.operator(_name(code), code, trades, key=symbol, shards=settings.shards) for code in EVENTS
    ]
    t.sink("statistics", sj.sinks.jsonl(out / "statistics"), *statistics)
    t.sink("events", sj.sinks.jsonl(out / "events"), *events)
    return t


def _name(code: type[Watch]) -> str:
    return code.what.replace(" ", "_")


def main() -> None:
    """Trade, and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--orders", help="a CSV file; made-up orders if there is none")
    parser.add_argument("--count", type=int, default=DEFAULTS.count, help="of made-up orders")
    parser.add_argument("--speed", type=float, default=DEFAULTS.speed)
    parser.add_argument("--seed", type=int, default=DEFAULTS.seed)
    parser.add_argument("--stocks", type=int, default=DEFAULTS.stocks)
    parser.add_argument("--out", default=DEFAULTS.out)
    parser.add_argument(
        "--on-error", choices=("fail", "skip", "dead-letter"), default=DEFAULTS.on_error,
        help="what becomes of an order that cannot be understood",
    )  # fmt: skip
    options = parser.parse_args()
    try:
        made = topology(Settings(**vars(options)))
    except sj.InputError as error:
        parser.error(str(error))
    with sj.start(made) as running:
        running.await_idle()
        found = running.samples().vertices
    print(
        f"{found['transact'].served} orders: {found['trades'].served} trades, "
        f"{found['statistics'].served} statistics, {found['events'].served} events, "
        f"{found['transact'].dropped} orders refused"
    )


if __name__ == "__main__":
    main()
