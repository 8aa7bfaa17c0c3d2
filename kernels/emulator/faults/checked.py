# SPDX-License-Identifier: Apache-2.0
"""Kernels of one library and `assay check` on them, as kill_faults.py and find_races.py need it: rows, or an end with what was printed."""
import csv
import os
import pathlib
import re
import subprocess
import sys
import tempfile


def ops_of(assay: str, library: str) -> dict[str, str]:
    """Op of every kernel in the library, by name."""
    done = subprocess.run([assay, "kernels", "--backend", library], capture_output=True, text=True, check=True)
    ops, op = {}, ""
    for text in done.stdout.splitlines():
        if re.fullmatch(r"[a-z_0-9]+", text):
            op = text
        elif op and (match := re.match(r"  ([a-z][a-z0-9_]+) ", text)):
            ops.setdefault(match[1], op)
    return ops


def rows_of(assay: str, library: str, what: list[str], kernels: list[str], seconds: float | None = None, fine=(0, 1),
            **environment: str) -> list[dict]:
    """Rows of `what` (lines, suites and options) for these kernels of the library or, where none is named, for every one.

    TimeoutExpired after `seconds`; fine: exit codes of a check whose rows count; environment: what is different there."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out"
        command = [assay, "check", *what, "--backend", library, "--out", str(out), "--quiet", "--no-table"]
        for kernel in kernels:
            command += ["--kernel", kernel]
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, env=os.environ | environment)
        if done.returncode not in fine:
            sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        with open(out / "rows.csv", newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))
