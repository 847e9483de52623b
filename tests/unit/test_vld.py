"""Logo detection of examples/vld.py, without Spark: right about composed frames, and clear about
what is no video."""

import argparse
import itertools
from pathlib import Path
from typing import Any

import pytest
import vld

import sojourn as sj
from sojourn.testing import Bench


def test_logos_are_found_where_they_are() -> None:
    bench, shown = Bench(vld.topology()), vld.logos()
    for number in range(0, 400, 10):
        bench.send("frames", (number, vld.encoded(vld.composed(number, 0, shown))))
    bench.run()
    found = bench.outputs["logos"]
    assert [frame["frame"] for frame in found] == list(range(0, 400, 10))
    precision, recall = vld.scores(found, 0)
    assert precision > 0.9
    assert recall > 0.9
    assert bench.state("aggregate") == {}


def test_a_corrupt_frame_is_an_error() -> None:
    bench = Bench(vld.topology())
    bench.send("frames", (7, b"no picture"))
    with pytest.raises(ValueError, match="frame 7 cannot be decoded"):
        bench.run()


def test_a_video_must_be_one(tmp_path: Path) -> None:
    text, empty = tmp_path / "text.mp4", tmp_path / "empty.mp4"
    text.write_text("no video", encoding="utf-8")
    empty.touch()
    for path, message in (
        (tmp_path / "none.mp4", "no such file; give a video"),
        (tmp_path, "is no file"),
        (vld.pictures() / "camera.png", "is a picture"),
        (vld.pictures() / "hubble_deep_field.jpg", "is a picture"),
        (text, "no frame"),
        (empty, "no frame"),
    ):
        with pytest.raises(sj.InputError, match=message):
            vld.topology(vld.Settings(video=str(path)))


def filmed(path: Path, count: int) -> Path:
    """A video of composed frames."""
    cv2, shown = vld.vision(), vld.logos()
    kind = cv2.VideoWriter_fourcc(*"MJPG")
    writer = cv2.VideoWriter(str(path), kind, 25, (vld.WIDTH, vld.HEIGHT))
    for number in range(count):
        writer.write(cv2.cvtColor(vld.composed(number, 0, shown), cv2.COLOR_GRAY2BGR))
    writer.release()
    return path


def test_what_a_video_that_is_cut_off_lacks_is_corrupt_frames(tmp_path: Path) -> None:
    path = filmed(tmp_path / "cut.avi", 20)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    bench = Bench(vld.topology(vld.Settings(video=str(path), on_error="skip")))
    count = bench.read("frames")
    bench.run()
    numbers = [step.value[0] for step in bench.failed]
    assert numbers
    assert numbers[0] > 5
    assert numbers == list(range(numbers[0], count))
    assert count >= 18
    assert str(bench.failed[0].error).startswith(f"frame {numbers[0]} cannot be decoded")
    assert [frame["frame"] for frame in bench.outputs["logos"]] == list(range(numbers[0]))


def test_frame_rates_are_the_papers_or_as_given() -> None:
    rates = [rate for _, rate in vld.paper_rates(0)]
    assert min(rates) >= 1
    assert max(rates) <= 25
    assert 12 < sum(rates) / len(rates) < 14
    assert vld.steps("13") == 13.0
    assert vld.steps("60:6,60:12") == ((60.0, 6.0), (60.0, 12.0))
    with pytest.raises(argparse.ArgumentTypeError, match="got '6:'"):
        vld.steps("6:")


def test_a_videos_frames_are_read_from_a_position_on(tmp_path: Path) -> None:
    path = str(filmed(tmp_path / "short.avi", 5))
    source = vld.frames(vld.Settings(video=path))
    assert [position for _, position in source.read(None)] == [1, 2, 3, 4, 5]
    assert [value[0] for value, _ in source.read(3)] == [3, 4]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"count": 0}, "count must be at least 1; got 0"),
        ({"seed": -1}, "seed must be at least 0; got -1"),
        ({"ratio": -1.0}, "ratio must be above 0; got -1.0"),
        ({"distance": float("nan")}, "distance must be above 0; got nan"),
        ({"video": "a.mp4", "camera": 0}, "give one of them"),
    ],
)
def test_settings_must_make_sense(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(sj.InputError, match=message):
        vld.topology(vld.Settings(**wrong))


class Camera:
    """One that gives three frames and then none."""

    def __init__(self, _number: int) -> None:
        self.left = 3

    def read(self) -> tuple[bool, Any]:
        self.left -= 1
        return self.left >= 0, vld.logos()[0] if self.left >= 0 else None


def test_a_cameras_frames_go_on_in_number_and_a_camera_that_is_gone_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(vld.vision(), "VideoCapture", Camera)
    frames = vld.Frames(vld.Settings(camera=2)).read(10)
    seen = [(value[0], position) for value, position in itertools.islice(frames, 3)]
    assert seen == [(10, 11), (11, 12), (12, 13)]
    with pytest.raises(OSError, match="camera 2 gives no frames any more"):
        next(frames)
