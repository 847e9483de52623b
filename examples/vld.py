"""Video logo detection (DRS, ToN 2017, §V-A): which of sixteen logos are in each frame of a video.

    sojourn run examples/vld.py --max-sojourn 2s
    python examples/vld.py [--count 50] [--video FILE | --camera 0] [--rate 13 | --rate 60:6,60:12]

    frames ─→ extract ─→ match ─→ aggregate ─→ logos

`extract` finds SIFT features and sends them on in parts, `match` compares each part with the
features of the logos, and `aggregate`, keyed by frame, says which logos have enough matches once
all parts of a frame are there. Without a video, frames are composed: logos cut from the pictures
that scikit-image ships move over a changing background, so that the truth about each frame is
known. Needs `pip install 'sojourn[vision]'`.
"""

import argparse
import importlib.util
import itertools
import json
import math
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sojourn as sj

Image = Any  # an array of grey levels
WIDTH, HEIGHT, LOGO = 640, 360, 128
_STATED_TOO_MANY = 2  # frames that a good video may lack of those it says it has
LOGOS = (
    ("astronaut.png", 192, 0), ("astronaut.png", 128, 320), ("camera.png", 256, 128),
    ("chelsea.png", 128, 0), ("coffee.png", 0, 64), ("coffee.png", 448, 256),
    ("coins.png", 192, 128), ("motorcycle_left.png", 64, 128), ("motorcycle_left.png", 384, 0),
    ("page.png", 192, 0), ("page.png", 0, 0), ("text.png", 128, 0), ("ihc.png", 0, 0),
    ("hubble_deep_field.jpg", 448, 64), ("hubble_deep_field.jpg", 704, 512), ("logo.png", 128, 128),
)  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """The stream, and what counts as found."""

    rate: Any = None  # frames per second, or steps of (seconds, rate); the paper's unless given
    count: int | None = None
    seed: int = 0
    width: int = WIDTH  # frames that are wider are made smaller before features are looked for
    features: int = 200  # of a frame, the strongest
    part: int = 50  # features that are matched together
    ratio: float = 0.75  # the best match must be that much nearer than the second best
    distance: float = 250.0  # and no further than this
    matches: int = 6  # that make a logo found
    out: str = "out/vld"
    video: str | None = None
    camera: int | None = None
    on_error: sj.OnError = "fail"

    def check(self) -> None:
        """Refuse what makes no sense."""
        for what, value, least in (
            ("width", self.width, 1), ("features", self.features, 1),
            ("part", self.part, 1), ("matches", self.matches, 1),
            ("count", self.count, 1), ("seed", self.seed, 0), ("camera", self.camera, 0),
        ):  # fmt: skip
            if value is not None and value < least:
                raise sj.InputError(f"{what} must be at least {least}; got {value}")
        for what, number in (("ratio", self.ratio), ("distance", self.distance)):
            if not 0 < number < math.inf:
                raise sj.InputError(f"{what} must be above 0; got {number}")
        if self.video is not None and self.camera is not None:
            raise sj.InputError("a video and a camera were given; give one of them")


def paper_rates(seed: int) -> tuple[tuple[float, float], ...]:
    """A frame rate uniform in [1, 25], anew every second for an hour; the last goes on."""
    draw = random.Random(seed)
    return tuple((1.0, draw.uniform(1, 25)) for _ in range(3600))


def vision() -> Any:
    """OpenCV on one thread, as every worker is a processor of its own."""
    try:
        import cv2
    except ImportError:
        raise sj.InputError("logo detection needs OpenCV: pip install 'sojourn[vision]'") from None
    cv2.setNumThreads(1)
    return cv2


def pictures() -> Path:
    """Where scikit-image keeps its pictures."""
    found = importlib.util.find_spec("skimage")
    if found is None or not found.submodule_search_locations:
        raise sj.InputError("the logos come with scikit-image: pip install 'sojourn[vision]'")
    return Path(found.submodule_search_locations[0]) / "data"


def logos() -> list[Image]:
    """Sixteen squares cut from pictures."""
    cv2 = vision()
    found = []
    for name, left, top in LOGOS:
        picture = cv2.imread(str(pictures() / name), cv2.IMREAD_GRAYSCALE)
        if picture is None:
            raise sj.InputError(f"{pictures() / name}: cannot be read; install scikit-image anew")
        side = min(LOGO, *picture.shape)
        y, x = min(top, picture.shape[0] - side), min(left, picture.shape[1] - side)
        found.append(cv2.resize(picture[y : y + side, x : x + side], (LOGO, LOGO)))
    return found


def truth(number: int, seed: int) -> list[tuple[int, int, int]]:
    """The logos in a composed frame and where they are: none to three, that move from frame to
    frame and change every 25."""
    draw = random.Random(seed * 1_000_003 + number // 25)
    shown = draw.sample(range(len(LOGOS)), draw.randint(0, 3))
    found = []
    for place, logo in enumerate(shown):
        x, y, dx, dy = draw.random(), draw.random(), draw.uniform(-4, 4), draw.uniform(-2, 2)
        step = number % 25
        left = place * (WIDTH // 3) + 10 + int(x * 60 + dx * step) % 70
        top = 20 + int(y * 150 + dy * step) % 190
        found.append((logo, left, top))
    return found


def composed(number: int, seed: int, shown: list[Image]) -> Image:
    """Frame of that number, with these logos."""
    import numpy as np

    cv2 = vision()
    drawn = np.random.default_rng([seed, number])
    ramp = np.linspace(60, 150, WIDTH, dtype=np.float32)
    frame = np.tile(ramp + 20 * np.sin(number / 20), (HEIGHT, 1))
    for _ in range(6):  # shapes that are no logo
        corner = drawn.integers(0, (WIDTH, HEIGHT))
        size = drawn.integers(10, 60)
        cv2.circle(frame, tuple(map(int, corner)), int(size), float(drawn.integers(40, 200)), -1)
    for logo, left, top in truth(number, seed):
        frame[top : top + LOGO, left : left + LOGO] = shown[logo]
    frame += drawn.normal(0, 3, frame.shape)
    return np.clip(frame, 0, 255).astype(np.uint8)


def encoded(frame: Image) -> bytes:
    """As JPEG, of which a frame has some ten kilobytes."""
    return bytes(vision().imencode(".jpg", frame)[1].tobytes())


class Frames(sj.Source[tuple[int, bytes]]):
    """The frames of a video file or camera; the position is how many came before."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.path = None if settings.video is None else str(Path(settings.video).resolve())
        rate = paper_rates(settings.seed) if settings.rate is None else settings.rate
        self.pace = sj.sources.Pace(rate, "constant", settings.seed)

    def read(self, position: Any) -> Iterator[tuple[tuple[int, bytes], int]]:
        cv2 = vision()
        from_file, camera = self.path is not None, self.settings.camera
        video = cv2.VideoCapture(self.path if from_file else camera)
        stated = video.get(cv2.CAP_PROP_FRAME_COUNT) if from_file else math.inf
        most = math.inf if self.settings.count is None else self.settings.count
        before = position or 0
        for number in itertools.count(1 if from_file else before + 1):
            fine, frame = video.read()
            if number > most or (not fine and number > stated - _STATED_TOO_MANY):
                return
            if not fine and not from_file:
                raise OSError(f"camera {camera} gives no frames any more")
            if number > before:
                # A frame that cannot be read is sent on empty, for `on_error` to deal with.
                yield (number - 1, encoded(frame) if fine else b""), number


def frames(settings: Settings) -> sj.Source[tuple[int, bytes]]:
    """Of a file, a camera, or composed."""
    if settings.video is None and settings.camera is None:
        shown = logos()
        return sj.sources.paced(
            lambda number: (number, encoded(composed(number, settings.seed, shown))),
            rate=paper_rates(settings.seed) if settings.rate is None else settings.rate,
            arrivals="constant",
            count=settings.count,
            seed=settings.seed,
        )
    if settings.video is not None:
        path = Path(settings.video)
        if not path.is_file():
            what = "is no file" if path.exists() else "no such file"
            raise sj.InputError(f"{path}: {what}; give a video")
        video = vision().VideoCapture(str(path))
        (fine, _), (more, _) = video.read(), video.read()
        if not fine or (not more and vision().haveImageReader(str(path))):
            why = "is a picture" if fine else "has no frame that can be read as video"
            raise sj.InputError(f"{path}: {why}; give a video that OpenCV can read")
    elif not vision().VideoCapture(settings.camera).isOpened():
        raise sj.InputError(
            f"camera {settings.camera}: cannot be opened; give the number of one that is connected"
        )
    return Frames(settings)


class Extract(sj.Operator):
    """SIFT features of a frame, the strongest `features` of them, in parts of `part`."""

    def __init__(self, features: int, part: int, width: int) -> None:
        self.features, self.part, self.width = features, part, width

    def open(self) -> None:
        self.sift = vision().SIFT_create(nfeatures=self.features)

    def process(self, frame: tuple[int, bytes]) -> Iterator[tuple[int, int, bytes]]:
        import numpy as np

        cv2 = vision()
        number, jpeg = frame
        data = np.frombuffer(jpeg, np.uint8)
        picture = cv2.imdecode(data, cv2.IMREAD_GRAYSCALE) if len(data) else None
        if picture is None:
            raise ValueError(f"frame {number} cannot be decoded: it is broken or cut off")
        if (share := self.width / picture.shape[1]) < 1:
            picture = cv2.resize(picture, None, fx=share, fy=share, interpolation=cv2.INTER_AREA)
        _, features = self.sift.detectAndCompute(picture, None)
        if features is None:
            features = np.empty((0, 128), np.float32)
        parts = max(1, -(-len(features) // self.part))
        for part in range(parts):
            some = features[part * self.part : (part + 1) * self.part]
            yield number, parts, some.astype(np.uint8).tobytes()


class Match(sj.Operator):
    """Counts the features of a part that match a logo, by L2 distance."""

    def __init__(self, ratio: float, distance: float) -> None:
        self.ratio, self.distance = ratio, distance

    def open(self) -> None:
        import numpy as np

        sift = vision().SIFT_create()
        found = [sift.detectAndCompute(logo, None)[1] for logo in logos()]
        self.features = np.concatenate(found).astype(np.float32)
        self.logo = np.repeat(np.arange(len(found)), [len(of) for of in found])

    def process(self, part: tuple[int, int, bytes]) -> tuple[int, int, dict[int, int]]:
        import numpy as np

        number, parts, some = part
        features = np.frombuffer(some, np.uint8).reshape(-1, 128).astype(np.float32)
        squares = (features**2).sum(1)[:, None] + (self.features**2).sum(1)[None, :]
        distances = np.sqrt(np.maximum(0, squares - 2 * features @ self.features.T))
        counts: dict[int, int] = {}
        for row in distances:
            first = int(row.argmin())
            others = row[self.logo != self.logo[first]]
            if row[first] < self.distance and row[first] < self.ratio * others.min():
                logo = int(self.logo[first])
                counts[logo] = counts.get(logo, 0) + 1
        return number, parts, counts


class Aggregate(sj.Operator):
    """The logos of a frame that have enough `matches`, once all of its parts are there."""

    def __init__(self, matches: int) -> None:
        self.matches = matches

    def process(self, part: tuple[int, int, dict[int, int]]) -> Iterator[dict[str, Any]]:
        number, parts, counts = part
        seen, total = self.state.pop(number, (0, {}))
        for logo, count in counts.items():
            total[logo] = total.get(logo, 0) + count
        if seen + 1 < parts:
            self.state[number] = (seen + 1, total)
            return
        found = sorted(logo for logo, count in total.items() if count >= self.matches)
        yield {"frame": number, "logos": found}


DEFAULTS = Settings()


def topology(settings: Settings = DEFAULTS) -> sj.Topology:
    """frames → extract → match → aggregate → logos."""
    vision()
    settings.check()
    t = sj.Topology("vld")
    source = t.source("frames", frames(settings))
    extract = Extract(settings.features, settings.part, settings.width)
    features = t.operator("extract", extract, source, on_error=settings.on_error)
    matched = t.map("match", Match(settings.ratio, settings.distance), features)
    found = t.operator("aggregate", Aggregate(settings.matches), matched, key=lambda part: part[0])
    t.sink("logos", sj.sinks.jsonl(settings.out), found)
    return t


def scores(found: Iterable[dict[str, Any]], seed: int) -> tuple[float, float]:
    """Precision and recall against the truth about composed frames."""
    right = wrong = missed = 0
    for frame in found:
        shown = {logo for logo, _, _ in truth(frame["frame"], seed)}
        told = set(frame["logos"])
        right += len(shown & told)
        wrong += len(told - shown)
        missed += len(shown - told)
    return right / max(1, right + wrong), right / max(1, right + missed)


def results(directory: str) -> list[dict[str, Any]]:
    """Everything that the sink has written."""
    lines: list[dict[str, Any]] = []
    for path in sorted(Path(directory).glob("*.jsonl")):
        lines += map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return lines


def steps(text: str) -> Any:
    """A rate, or rates with how many seconds each lasts."""
    try:
        if ":" not in text:
            return float(text)
        return tuple((float(s), float(r)) for s, r in (step.split(":") for step in text.split(",")))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"must be frames per second, or seconds:rate,…; got {text!r}"
        ) from None


def main() -> None:
    """Run over some frames and print what was found."""
    parser = argparse.ArgumentParser(description="video logo detection")
    kinds: tuple[tuple[str, Callable[[str], Any]], ...] = (
        ("count", int), ("rate", steps), ("seed", int), ("video", str), ("camera", int),
        ("out", str), ("width", int), ("features", int),
    )  # fmt: skip
    for name, kind in kinds:
        parser.add_argument(f"--{name}", type=kind)
    parser.add_argument("--on-error", choices=("fail", "skip", "dead-letter"))
    given = {k: v for k, v in vars(parser.parse_args()).items() if v is not None}
    if "video" not in given:
        given = {"count": 50, **given}
    settings = Settings(**given)
    try:
        made = topology(settings)
        checkpoint = Path(settings.out) / "checkpoint"
        if checkpoint.exists() or any(Path(settings.out).glob("*.jsonl")):
            raise sj.InputError(f"{settings.out}: has results already; give another --out")
    except sj.InputError as error:
        parser.error(str(error))
    try:
        with sj.start(made, checkpoint=checkpoint) as running:
            running.await_idle()
            dropped = running.samples().vertices["extract"].dropped
    except sj.TopologyFailed as error:
        parser.exit(1, f"{error}\n")
    found = results(settings.out)
    for frame in sorted(found, key=lambda one: int(one["frame"])):
        print(frame["frame"], " ".join(LOGOS[logo][0] for logo in frame["logos"]) or "none")
    print(f"{dropped} frames could not be read")
    if dropped and settings.on_error == "dead-letter":
        print(f"they are in {checkpoint}/sojourn/dead-letters/extract")
    if settings.video is None and settings.camera is None:
        precision, recall = scores(found, settings.seed)
        print(f"precision {precision:.3f}, recall {recall:.3f}")


if __name__ == "__main__":
    main()
