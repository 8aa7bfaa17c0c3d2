#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether intervals hold between repetitions: one case timed again and again, each time by an `assay bench` of its own.

Usage: repetitions.py ASSAY LIBRARY KERNEL LINE [--cache MODE] [--times N] [--seconds S] [--out CSV] [-- OPTION...]

Writes a row of CSV per repetition as it comes (those of results/h200/steady) and prints, of all pairs of repetitions, the share
in which the 95 % interval of one holds the median of the other. None begins after S seconds.
"""
import argparse
import csv
import pathlib
import subprocess
import sys
import tempfile
import time

COLUMNS = "scenario kernel time_low_us time_us time_high_us samples stop steady sm_clock_mhz others_percent".split()


def covered(rows: list[dict]) -> float:
    """Of all ordered pairs."""
    numbers = [[float(row[c]) for c in ("time_low_us", "time_us", "time_high_us")] for row in rows]
    pairs = [low <= other[1] <= high for i, (low, _, high) in enumerate(numbers) for j, other in enumerate(numbers) if i != j]
    return sum(pairs) / len(pairs)


def one(options, more: list[str]) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out"
        command = [options.assay, "bench", options.line, "--backend", options.library, "--kernel", options.kernel, "--cache", options.cache, "--quiet", "--no-table",
                   "--out", str(out), *more]
        done = subprocess.run(command, capture_output=True, text=True)
        if not (out / "rows.csv").is_file():
            sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        with open(out / "rows.csv", newline="", encoding="utf-8") as file:
            row = next(r for r in csv.DictReader(file) if r["kernel"] == options.kernel)
        if row["outcome"] not in ("passed", "noisy") or not row["time_low_us"]:
            sys.exit(f"{options.line}: {row['outcome']}: {row['reason']}")
        return {c: row[c] for c in COLUMNS}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("assay")
    parser.add_argument("library")
    parser.add_argument("kernel")
    parser.add_argument("line")
    parser.add_argument("--cache", choices=("hot", "cold", "dirty", "graph"), default="hot")
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--out", type=pathlib.Path)
    options, more = parser.parse_known_args()
    more = [word for word in more if word != "--"]
    begun, rows = time.monotonic(), []
    file = open(options.out, "w", newline="", encoding="utf-8") if options.out else sys.stdout
    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
    writer.writeheader()
    while len(rows) < options.times and time.monotonic() - begun < options.seconds:
        rows.append(one(options, more))
        writer.writerow(rows[-1])
        file.flush()
    if len(rows) < 2:
        return 1
    medians = sorted(float(r["time_us"]) for r in rows)
    width = sorted((float(r["time_high_us"]) - float(r["time_low_us"])) / float(r["time_us"]) for r in rows)[len(rows) // 2]
    print(f"{options.line}, {options.kernel}: {len(rows)} repetitions, medians {medians[0]:.1f} to {medians[-1]:.1f} us, "
          f"{100 * covered(rows):.1f} % of the other medians covered, intervals {100 * width:.1f} % wide")
    return 0


if __name__ == "__main__":
    sys.exit(main())
