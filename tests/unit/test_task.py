"""What a Spark task tells the executor of the rows it gets from it."""

import socket
import subprocess
import sys
from contextlib import ExitStack

import pyarrow as pa

from sojourn.engine.spark.task import record_batches
from sojourn.engine.wire.bundle import FrameReader, send_frame
from sojourn.engine.wire.spec import END, TOLD_AT, WINDOW


def test_rows_taken_are_told_a_few_together_and_before_the_window_is_shut() -> None:
    with ExitStack() as undo:
        executor, task = map(undo.enter_context, socket.socketpair())
        counts, taken = map(undo.enter_context, socket.socketpair())
        reader = FrameReader(counts)
        rows = record_batches(task, taken)
        told = []
        for number in range(2 * WINDOW):
            send_frame(executor, (7).to_bytes(2, "little"), b"%d" % number)
            batch = next(rows)
            assert batch.to_pylist() == [{"pid": 7, "data": b"%d" % number}]
            if number and number % TOLD_AT == 0:  # those before are told once the next is asked for
                told.append(int.from_bytes(reader.read() or b"", "little"))
        assert told == [TOLD_AT] * (2 * WINDOW // TOLD_AT - 1)
        send_frame(executor, END)
        assert list(rows) == []


def test_rows_are_made_without_pandas() -> None:
    code = (
        "import sys; from sojourn.engine.spark.task import record_batch as made; "
        "assert made([1, 2], [b'', b'two']).to_pylist() == "
        "[{'pid': 1, 'data': b''}, {'pid': 2, 'data': b'two'}]; "
        "assert made([], []).num_rows == 0; print('pandas' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert told.stdout == "False\n"


def test_what_was_read_together_is_one_record_batch() -> None:
    with ExitStack() as undo:
        executor, task = map(undo.enter_context, socket.socketpair())
        _, taken = map(undo.enter_context, socket.socketpair())
        for number in range(3):
            send_frame(executor, number.to_bytes(2, "little"), b"row")
        send_frame(executor, END)
        (batch,) = record_batches(task, taken)
        assert isinstance(batch, pa.RecordBatch)
        assert batch.column("pid").to_pylist() == [0, 1, 2]
