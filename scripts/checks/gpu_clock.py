#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Clocks on a GPU: a kernel that does two milliseconds of its work on a stream of its own between calls
(testing/libassay_gpu_timed.so) must have implausible times, the same kernel without that must have ordinary ones.

Usage: gpu_clock.py BUILD_FOLDER
Exit: 0 both as they must be, 1 not, 77 there is no GPU here (or no such library was built)
"""
import csv
import pathlib
import re
import subprocess
import sys
import tempfile

from gpu_library import reason_to_skip

SCENARIO = "paged h=4/2 d=64 batch=2q1s33_1q5s40 seed=1"
CACHES = ("cold", "dirty")
# kernel, outcomes, check, what the reason must contain (regular expression)
EXPECTED = [
    ("paged_honest_timed", {"passed", "noisy"}, "", ""),
    ("paged_between_timed", {"implausible"}, "clock", "or more where nothing was left on the device"),
]


def problems_of(rows: list[dict[str, str]], code: int) -> list[str]:
    """What is not as it must be in the rows and the exit code; empty when everything is."""
    found = []
    for kernel, outcomes, check, reason in EXPECTED:
        mine = [row for row in rows if row["kernel"] == kernel]
        if len(mine) != len(CACHES):
            found.append(f"{kernel}: {len(mine)} rows, expected {len(CACHES)}")
        for row in mine:
            if row["outcome"] not in outcomes or row["check"] != check or not re.search(reason, row["reason"]):
                found.append(f"{kernel}, {row['cache']}: {row['outcome']} ({row['check']}: {row['reason']}), expected "
                             f"{' or '.join(sorted(outcomes))} ({check}: {reason})")
    if code != 1:
        found.append(f"exit code {code}, expected 1 (one kernel's times cannot be)")
    return found


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    build = pathlib.Path(sys.argv[1])
    program, library = build / "assay", build / "testing" / "libassay_gpu_timed.so"
    if reason := reason_to_skip(program, library, SCENARIO, "paged_honest_timed"):
        print(f"skipped: {reason}")
        return 77
    with tempfile.TemporaryDirectory() as temporary:
        rows, code = [], 0
        for cache in CACHES:  # a run each: nothing more is timed of a kernel whose times cannot be
            out = pathlib.Path(temporary) / cache
            bench = subprocess.run([program, "bench", SCENARIO, "--backend", library, "--cache", cache, "--max-seconds", "0.2", "--out", out],
                                   capture_output=True, text=True)
            print(bench.stdout, bench.stderr, sep="", end="")
            code = max(code, bench.returncode)
            table = out / "rows.csv"
            rows += [row | {"cache": cache} for row in (csv.DictReader(table.open(newline="")) if table.exists() else [])]
    found = problems_of(rows, code)
    for line in found:
        print(f"FOUND {line}")
    for row in rows:
        print(f"{row['kernel']}, {row['cache']}: {row['outcome']} {row['reason']}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
