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


def whole_rows(table: pathlib.Path) -> list[dict]:
    """None where there is no table yet; a last row that was cut off is left out."""
    if not table.is_file():
        return []
    with open(table, newline="", encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if None not in row.values()]


def rows_of(assay: str, library: str, what: list[str], kernels: list[str], seconds: float | None = None, fine=(0, 1),
            **environment: str) -> list[dict]:
    """Rows of `what` (lines, suites and options) for these kernels of the library or, where none is named, for every one.

    TimeoutExpired after `seconds`, with the rows so far in `rows`; fine: exit codes of a check whose rows count; environment: what is different there."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out"
        command = [assay, "check", *what, "--backend", library, "--out", str(out), "--quiet", "--no-table"]
        for kernel in kernels:
            command += ["--kernel", kernel]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, env=os.environ | environment)
        except subprocess.TimeoutExpired as late:
            late.rows = whole_rows(out / "rows.csv")
            raise
        if done.returncode not in fine:
            sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return whole_rows(out / "rows.csv")
