#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Crash survival on a GPU: one sweep over kernels that bring down their process or device, each followed by a right
one (testing/libassay_gpu_crash.so). Every crash must be a row with its outcome and reason, every kernel behind it must
pass, the exit code must be that of a run with failures, and afterwards the device must serve a healthy run.

Usage: gpu_crash.py BUILD_FOLDER [--keep DIR]     DIR keeps the results folder and what was printed
Exit: 0 all as it must be, 1 not, 77 there is no GPU here (or no such library was built)
"""
import argparse
import csv
import pathlib
import re
import subprocess
import sys
import tempfile
import time

from gpu_library import reason_to_skip

SCENARIO = "paged h=4/2 d=64 batch=2q1s33_1q5s40 seed=1"
TIMEOUT_S = 15
# kernel, outcome, what the reason must contain (regular expression)
EXPECTED = [
    ("address", "crashed", "illegal memory access"),
    ("assert", "crashed", "device-side assert"),
    ("trap", "crashed", "unspecified launch failure|illegal instruction"),
    ("sticky", "crashed", "illegal memory access"),
    ("endless", "timed_out", r"no result within .* while running paged_endless_crash"),
    ("pending", "crashed", "invalid configuration argument|invalid argument"),
    ("memory", "crashed", "allocate 64 TiB: out of memory"),
    ("workspace", "crashed", "workspace_bytes says .* more than the"),
    ("overrun", "wrong", "wrote outside its buffers: lse"),
]


def problems_of(rows: list[dict[str, str]], code: int) -> list[str]:
    """What is not as it must be in the rows and the exit code of the sweep; empty when everything is."""
    found = []
    by_kernel: dict[str, list[dict[str, str]]] = {}
    for row in rows:
        by_kernel.setdefault(row["kernel"], []).append(row)

    def look(kernel: str, outcome: str, reason: str) -> None:
        mine = by_kernel.pop(kernel, [])
        if len(mine) != 1:
            found.append(f"{kernel}: {len(mine)} rows, expected 1")
        elif mine[0]["outcome"] != outcome or not re.search(reason, mine[0]["reason"]):
            found.append(f"{kernel}: {mine[0]['outcome']} ({mine[0]['reason']}), expected {outcome} ({reason})")

    for name, outcome, reason in EXPECTED:
        look(f"paged_{name}_crash", outcome, reason)
        look(f"paged_after{name}_crash", "passed", "^$")
    found += [f"{kernel}: not expected at all" for kernel in by_kernel]
    if code != 1:
        found.append(f"exit code {code} of the sweep, expected 1 (some kernels failed)")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--keep", type=pathlib.Path)
    arguments = parser.parse_args()
    program = arguments.build / "assay"
    library = arguments.build / "testing" / "libassay_gpu_crash.so"
    if reason := reason_to_skip(program, library, SCENARIO, "paged_afteraddress_crash"):
        print(f"skipped: {reason}")
        return 77
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or pathlib.Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        start = time.monotonic()
        sweep = subprocess.run([program, "check", SCENARIO, "--backend", library, "--timeout", str(TIMEOUT_S), "--out", folder / "sweep"],
                               capture_output=True, text=True)
        seconds = time.monotonic() - start
        (folder / "printed.txt").write_text(sweep.stdout + sweep.stderr)
        print(sweep.stdout, sweep.stderr, sep="", end="")
        table = folder / "sweep" / "rows.csv"
        rows = list(csv.DictReader(table.open(newline=""))) if table.exists() else []
        found = problems_of(rows, sweep.returncode)
        healthy = subprocess.run([program, "check", "smoke", "--backend", "cuda", "--kernel", "*simple_gpu", "--limit", "10"],
                                 capture_output=True, text=True)
        if healthy.returncode != 0:
            found.append(f"the device does not serve a healthy run afterwards (exit code {healthy.returncode}):\n{healthy.stdout}{healthy.stderr}")
    for line in found:
        print(f"FOUND {line}")
    crashes = sum(row["outcome"] != "passed" for row in rows)
    print(f"{len(rows)} rows in {seconds:.0f} s, {crashes} of kernels that fail; healthy afterwards: {healthy.returncode == 0}; "
          f"{len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
