#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How surely `assay check --races` finds the races planted in GPU kernels, and whether it accuses a kernel without one.

Usage: find_races.py ASSAY LIBRARY [--suite FILE] [--repetitions N] [--runs R] [--right-every K] [--timeout S] [--seconds S]

LIBRARY lists kernels that end in _gpu or _sm90, which are right, and kernels with a race (build/testing/libassay_gpu_races.so on a device,
build/emulator/libassay_gpu_races32.so here). A run checks every line of the suite, with a seed of its own, with N repetitions; a race is shown in it when
a line says so, by repetition 0 when the ordinary judgement does. Right kernels are in every K-th run. No run begins later than --seconds. Prints a table; exit 0: every race
shown in 95 % of the runs or more, and no right kernel accused. Exit 1 otherwise.
"""
import argparse
import pathlib
import re
import signal
import sys
import time

from checked import rows_of

HERE = pathlib.Path(__file__).resolve().parent
FINE = ("passed", "unsupported", "untrusted")


def is_right(kernel: str) -> bool:
    return kernel.endswith(("_gpu", "_sm90"))


def one_run(options, number: int, kernels: list[str]) -> list[dict]:
    """Rows of all lines of the suite, with these kernels of the library or, where none is named, with every one."""
    what = [str(options.suite), "--races", str(options.repetitions), "--seed", str(number), "--rows-budget", "1e5", "--timeout", str(options.timeout)]
    return rows_of(options.assay, options.library, what, kernels)


def first_seen(rows: list[dict]) -> int | None:
    """The fewest repetitions a run of one race took; None where it was not seen."""
    seen = []
    for row in rows:
        if row["outcome"] not in FINE:
            match = re.match(r"in repetition (\d+) of", row["reason"])
            seen.append(int(match[1]) if match else 0)
    return min(seen, default=None)


class Found:
    """What the runs so far have shown."""

    def __init__(self):
        self.runs, self.shown, self.ways, self.accused, self.calls = 0, {}, {}, [], {}

    def add(self, rows: list[dict], repetitions: int):
        self.runs += 1
        by_kernel = {}
        for row in rows:
            by_kernel.setdefault(row["kernel"], []).append(row)
        for kernel, own in by_kernel.items():
            wrong = [r for r in own if r["outcome"] not in FINE]
            if is_right(kernel):
                self.calls[kernel] = self.calls.get(kernel, 0) + sum(r["outcome"] == "passed" for r in own) * repetitions
                self.accused += [f"{kernel} has no race: {r['outcome']}: {r['reason']}\n  {r['scenario']}" for r in wrong]
            elif any(r["outcome"] != "unsupported" for r in own):
                self.shown.setdefault(kernel, []).append(first_seen(own))
                self.ways.setdefault(kernel, []).extend(f"{r['outcome']}: {r['reason']}" for r in wrong)

    def report(self, how: str) -> int:
        print(f"{'race':32}{'runs':>6}{'shown':>7}{'first seen in repetition: median':>34}{'largest':>9}")
        missed = []
        for kernel in sorted(self.shown):
            seen = sorted(n for n in self.shown[kernel] if n is not None)
            if len(seen) < 0.95 * len(self.shown[kernel]):
                missed.append(kernel)
            middle, most = (seen[len(seen) // 2], seen[-1]) if seen else ("-", "-")
            print(f"{kernel:32}{len(self.shown[kernel]):6}{len(seen):7}{middle:>34}{most:>9}")
            if self.ways[kernel]:
                print(f"    {self.ways[kernel][-1][:180]}")
        print(f"{len(self.shown) - len(missed)} of {len(self.shown)} races shown in 95 % of {self.runs} runs of {how}")
        print(f"right kernels: {len(self.calls)}, repeated {sum(self.calls.values())} times in all, {len(self.accused)} accused")
        for text in self.accused:
            print(text)
        return 1 if missed or self.accused or not self.shown or not self.calls else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("assay")
    parser.add_argument("library")
    parser.add_argument("--suite", type=pathlib.Path, default=HERE / "races.suite")
    parser.add_argument("--repetitions", type=int, default=100)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--right-every", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=60)
    parser.add_argument("--seconds", type=float, default=1e9)
    options = parser.parse_args()
    start, found = time.monotonic(), Found()

    def stopped(*_):
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stopped)
    try:
        while found.runs < options.runs and time.monotonic() - start < options.seconds:
            number = found.runs + 1
            found.add(one_run(options, number, [] if number % options.right_every == 1 % options.right_every else sorted(found.shown)), options.repetitions)
            print(f"run {number}: {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        print("stopped before the end of a run, which does not count")
    return found.report(f"{options.repetitions} repetitions a line, in {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
