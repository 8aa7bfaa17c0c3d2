# SPDX-License-Identifier: Apache-2.0
"""`assay check` on kernels of one library, as kill_faults.py and find_races.py run it: its rows, or an end with what it printed."""
import csv
import pathlib
import subprocess
import sys
import tempfile


def rows_of(assay: str, library: str, what: list[str], kernels: list[str]) -> list[dict]:
    """Rows of `what` (lines, suites and options) for these kernels of the library or, where none is named, for every one."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out"
        command = [assay, "check", *what, "--backend", library, "--out", str(out), "--quiet", "--no-table"]
        for kernel in kernels:
            command += ["--kernel", kernel]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode not in (0, 1):
            sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        with open(out / "rows.csv", newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))
