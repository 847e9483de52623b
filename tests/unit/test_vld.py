"""Logo detection of examples/vld.py, without Spark: right about composed frames, and clear about
what is no video."""

from pathlib import Path
from typing import Any

import pytest
import vld

import sojourn as sj


def opened(kind: type[sj.Operator]) -> Any:
    made = kind()
    made.state = {}
    made.open()
    return made


def test_logos_are_found_where_they_are() -> None:
    settings = vld.Settings()
    steps = [opened(make(settings)) for make in (vld.extract, vld.match, vld.aggregate)]
    shown = vld.logos()
    found: list[Any] = [
        (number, vld.encoded(vld.composed(number, 0, shown))) for number in range(0, 400, 10)
    ]
    for step in steps:
        found = [made for value in found for made in step.process(value)]
    assert [frame["frame"] for frame in found] == list(range(0, 400, 10))
    precision, recall = vld.scores(found, 0)
    assert precision > 0.9
    assert recall > 0.9
    assert steps[-1].state == {}


def test_a_corrupt_frame_is_an_error() -> None:
    with pytest.raises(ValueError, match="frame 7 cannot be decoded"):
        list(opened(vld.extract(vld.Settings())).process((7, b"no picture")))


def test_a_video_must_be_one(tmp_path: Path) -> None:
    text, empty = tmp_path / "text.mp4", tmp_path / "empty.mp4"
    text.write_text("no video", encoding="utf-8")
    empty.touch()
    for path, message in (
        (tmp_path / "none.mp4", "no such file"),
        (text, "no frame"),
        (empty, "no frame"),
    ):
        with pytest.raises(sj.InputError, match=message):
            vld.topology(vld.Settings(video=str(path)))


def test_a_videos_frames_are_read_from_a_position_on(tmp_path: Path) -> None:
    cv2, path, shown = vld.vision(), str(tmp_path / "short.avi"), vld.logos()
    writer = cv2.VideoWriter(path, cv2.VideoWriter_fourcc(*"MJPG"), 25, (vld.WIDTH, vld.HEIGHT))
    for number in range(5):
        writer.write(cv2.cvtColor(vld.composed(number, 0, shown), cv2.COLOR_GRAY2BGR))
    writer.release()
    source = vld.frames(vld.Settings(video=path))
    assert [position for _, position in source.read(None)] == [1, 2, 3, 4, 5]
    assert [value[0] for value, _ in source.read(3)] == [3, 4]
