# SPDX-License-Identifier: Apache-2.0
"""gpu_crash.py must notice what a sweep over crashing kernels can get wrong; no GPU is needed to show that."""
import pathlib
import re
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import gpu_crash  # noqa: E402

SOURCES = pathlib.Path(__file__).resolve().parents[2] / "kernels" / "cuda" / "testing"
REASONS = {"address": "synchronize: an illegal memory access was encountered", "assert": "synchronize: device-side assert triggered",
           "trap": "synchronize: unspecified launch failure", "sticky": "synchronize: an illegal memory access was encountered",
           "endless": "no result within 15 s while running paged_endless_crash", "pending": "synchronize: invalid configuration argument",
           "memory": "allocate 64 TiB: out of memory", "workspace": "workspace_bytes says 1125899906842624, more than the 150109880320 of the device",
           "overrun": "wrote outside its buffers: lse (byte 1 past its end)"}


def rows():
    made = []
    for name, outcome, _ in gpu_crash.EXPECTED:
        made.append({"kernel": f"paged_{name}_crash", "outcome": outcome, "reason": REASONS[name]})
        made.append({"kernel": f"paged_after{name}_crash", "outcome": "passed", "reason": ""})
    return made


def test_a_sweep_as_it_must_be():
    assert gpu_crash.problems_of(rows(), 1) == []


@pytest.mark.parametrize("number", range(2 * len(gpu_crash.EXPECTED)))
def test_every_row_counts(number):
    lost = rows()
    kernel = lost.pop(number)["kernel"]
    assert gpu_crash.problems_of(lost, 1) == [f"{kernel}: 0 rows, expected 1"]
    twice = rows() + [rows()[number]]
    assert gpu_crash.problems_of(twice, 1) == [f"{kernel}: 2 rows, expected 1"]
    other = rows()
    other[number] |= {"outcome": "crashed", "reason": "SIGSEGV"}  # right for none of them
    assert len(gpu_crash.problems_of(other, 1)) == 1


def test_exit_code_and_strangers():
    assert gpu_crash.problems_of(rows(), 0) == ["exit code 0 of the sweep, expected 1 (some kernels failed)"]
    stranger = rows() + [{"kernel": "paged_new_crash", "outcome": "passed", "reason": ""}]
    assert gpu_crash.problems_of(stranger, 1) == ["paged_new_crash: not expected at all"]


def test_the_script_and_the_library_know_the_same_kernels():
    named = re.findall(r'entry\("(\w+)"', (SOURCES / "crash_library.cpp").read_text())
    assert named == [row["kernel"] for row in rows()]
