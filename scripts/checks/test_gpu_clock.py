# SPDX-License-Identifier: Apache-2.0
"""gpu_clock.py must notice what can be wrong with its rows; no GPU is needed to show that."""
import pathlib
import re
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import gpu_clock  # noqa: E402

SOURCES = pathlib.Path(__file__).resolve().parents[2] / "kernels" / "cuda" / "testing"
REASON = "8 calls took 2030 us or more where nothing was left on the device, and the others 30 us"


def rows():
    made = []
    for cache in gpu_clock.CACHES:
        made.append({"kernel": "paged_honest_timed", "cache": cache, "outcome": "passed", "check": "", "reason": ""})
        made.append({"kernel": "paged_between_timed", "cache": cache, "outcome": "implausible", "check": "clock", "reason": REASON})
    return made


def test_rows_as_they_must_be():
    assert gpu_clock.problems_of(rows(), 1) == []


@pytest.mark.parametrize("number", range(2 * len(gpu_clock.CACHES)))
def test_every_row_counts(number):
    lost = rows()
    kernel = lost.pop(number)["kernel"]
    assert gpu_clock.problems_of(lost, 1) == [f"{kernel}: 1 rows, expected 2"]
    for wrong in {"outcome": "wrong"}, {"check": "limits"}:
        other = rows()
        other[number] |= wrong
        assert len(gpu_clock.problems_of(other, 1)) == 1


def test_the_times_of_the_planted_one_are_judged():
    believed = rows()
    believed[1] |= {"outcome": "passed", "check": "", "reason": ""}
    assert len(gpu_clock.problems_of(believed, 1)) == 1
    for_another_reason = rows()
    for_another_reason[1] |= {"reason": "faster than the limits allow"}
    assert len(gpu_clock.problems_of(for_another_reason, 1)) == 1


def test_exit_code():
    assert gpu_clock.problems_of(rows(), 0) == ["exit code 0, expected 1 (one kernel's times cannot be)"]


def test_the_script_and_the_library_know_the_same_kernels():
    named = re.findall(r'entry\("(\w+)"', (SOURCES / "timed_library.cpp").read_text())
    assert named == [kernel for kernel, *_ in gpu_clock.EXPECTED]
