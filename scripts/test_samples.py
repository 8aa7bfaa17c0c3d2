# SPDX-License-Identifier: Apache-2.0
"""samples.bin read as documented, and the columns of rows.csv computed from it again.

    /usr/bin/python3 -m pytest scripts/test_samples.py
"""
import pathlib
import struct
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from reporting import rows, samples, synthetic  # noqa: E402


def folder(path: pathlib.Path, calls: list[list[float]], tail: bytes = b"") -> pathlib.Path:
    """Two timed rows; a time below zero is a call that was left out."""
    made = synthetic.rows()[:len(calls)]
    data = b""
    for i, (row, times) in enumerate(zip(made, calls)):
        kept = [t for t in times if t > 0]
        row.update(samples=len(kept), throttled=len(times) - len(kept), time_us=np.median(kept), time_q1_us=np.quantile(kept, 0.25),
                   time_q3_us=np.quantile(kept, 0.75))
        for n, t in enumerate(times):
            data += struct.pack("<IIdff", i, int(t < 0), abs(t), 1980 if i else float("nan"), n * 0.5)
    synthetic.write(path, made, synthetic.run_info())
    (path / "samples.bin").write_bytes(data + tail)
    return path


def test_load(tmp_path):
    frame = samples.load(folder(tmp_path, [[1, 2, 4], [8, -900, 9]], tail=b"half a record"))
    assert list(frame.us) == [1, 2, 4, 8, 900, 9] and list(frame.row) == [0, 0, 0, 1, 1, 1]
    assert list(frame.left_out) == [False] * 4 + [True, False]
    assert frame.sm_mhz[:3].isna().all() and (frame.sm_mhz[3:] == 1980).all() and list(frame.at_s[:3]) == [0, 0.5, 1]
    assert list(frame[~frame.left_out].groupby("row").us.median()) == [2, 8.5]
    assert samples.load(tmp_path / "nowhere").empty


@pytest.mark.parametrize("calls, said", [
    ([[1, 2, 4], [8, -900, 9]], []), ([[1, 2], [8, 9]], ["row 0: samples is 3", "row 0: time_us is 2,", "row 0: time_q3_us", "row 0: time_q1"]),
    ([[1, 2, 4], [8, 900, 9]], ["row 1: samples is 2", "row 1: time_us is 8.5,", "row 1: time_q1", "row 1: time_q3"])])
def test_what_does_not_agree_is_named(tmp_path, calls, said):
    run = rows.load(folder(tmp_path / "rows", [[1, 2, 4], [8, -900, 9]]))
    wrong = samples.disagreements(run.rows, samples.load(folder(tmp_path / "samples", calls)))
    assert len(wrong) == len(said) and all(any(w.startswith(s) for w in wrong) for s in said), wrong
