#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How surely `assay check --races` finds the races planted in GPU kernels, and whether it accuses a kernel without one.

Usage: find_races.py ASSAY LIBRARY [--suite FILE] [--repetitions N] [--runs R] [--right-every K] [--jobs J] [--devices D,...] [--in-step NAME...] [--timeout S] [--seconds S]
                     [--so-far FILE]

LIBRARY lists kernels that end in _gpu or _sm90, which are right, and kernels with a race (build/testing/libassay_gpu_races.so on a device,
build/emulator/libassay_gpu_races32.so here). A run is one `assay check --until-wrong` with a seed of its own: it visits the lines of the suite in order, with N repetitions each and with
the races that no line before has shown. What the ordinary judgement shows needs no repetition; those of lines before count. A right kernel is in
every K-th run, each with the next ones. J runs go on at a time, shared out to the devices named (CUDA_VISIBLE_DEVICES), none longer than --seconds. --in-step: what cannot show, as the threads that do not wait for each other are of one warp, which the
device takes through that place in step; printed, not counted. Exit 0: every race shown in 95 % of the runs or more, and no right kernel accused. Exit 1 otherwise.
"""
import argparse
import collections
import concurrent.futures
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

from checked import ops_of, rows_of

HERE = pathlib.Path(__file__).resolve().parent
FINE = ("passed", "unsupported", "untrusted")
SHOWN = re.compile(r"in repetition (\d+) of \d+, ([^:]*): ")


def is_right(kernel: str) -> bool:
    return kernel.endswith(("_gpu", "_sm90"))


def lines_of(suite: pathlib.Path) -> list[str]:
    return [s for s in suite.read_text(encoding="utf-8").splitlines() if s and not s.startswith("#")]


class Run:
    """What one run has shown."""

    def __init__(self, number: int):
        self.number = number
        self.shown = {}  # race: (repetitions needed, how)
        self.spent = collections.Counter()  # repetitions of a race that is not shown
        self.calls, self.accused = collections.Counter(), []
        self.seconds = collections.Counter()  # by line
        self.whole = False  # all lines were visited

    def add(self, rows: list[dict], repetitions: int):
        for row in rows:
            kernel, fine = row["kernel"], row["outcome"] in FINE
            if is_right(kernel):
                self.calls[kernel] += repetitions * (row["outcome"] == "passed")
                if not fine:
                    self.accused.append(f"{kernel} has no race: {row['outcome']}: {row['reason']}\n  {row['scenario']}")
            elif not fine:
                match = SHOWN.match(row["reason"])
                self.shown[kernel] = (self.spent[kernel] + (int(match[1]) if match else 0), match[2] if match else "judged", row["outcome"], row["reason"])
            elif row["outcome"] != "unsupported":
                self.spent[kernel] += repetitions


class Stop:
    """Until when runs may go on."""

    def __init__(self, seconds: float):
        self.at = time.monotonic() + seconds
        self.asked = False

    def left(self) -> float:
        return 0 if self.asked else max(0, self.at - time.monotonic())


def one_run(options, number: int, ops: dict[str, str], races: list[str], stop: Stop) -> Run:
    """Visits the lines until nothing is left to show."""
    run = Run(number)
    kernels = races + [n for i, n in enumerate(filter(is_right, ops)) if (number + i) % options.right_every == 0]
    visited = [line for line in lines_of(options.suite) if any(ops[n] == line.split()[0] for n in kernels)]
    if stop.left() == 0:
        return run
    what = [*visited, "--until-wrong", "--races", str(options.repetitions), "--seed", str(number), "--rows-budget", str(options.rows_budget),
            "--timeout", str(options.timeout)]
    try:
        # 6: what one call did beside others it did not do alone. A race may; the row says what it did alone.
        device = {"CUDA_VISIBLE_DEVICES": options.devices[number % len(options.devices)]} if options.devices else {}
        rows = rows_of(options.assay, options.library, what, kernels, seconds=stop.left(), fine=(0, 1, 6), **device)
    except subprocess.TimeoutExpired as late:
        rows = late.rows
    except SystemExit as why:
        if not stop.asked:  # the signal meets the program too
            print(f"run {number} ends: {why}", file=sys.stderr, flush=True)
        return run
    run.add(rows, options.repetitions)
    for row in rows:
        run.seconds[row["scenario"]] += float(row["case_s"] or 0)
    met, failed = collections.Counter(row["kernel"] for row in rows), {row["kernel"] for row in rows if row["outcome"] not in FINE}
    lines = collections.Counter(line.split()[0] for line in visited)
    run.whole = all(n in failed or met[n] == lines[ops[n]] for n in kernels)
    return run


def percentile(values: list[int], share: float) -> int:
    return values[min(len(values) - 1, int(share * len(values)))]


def table(runs: list[Run], races: list[str], options, seconds: float) -> tuple[str, bool]:
    """What whole runs have shown, and whether that is all that was to be shown."""
    text = [f"{'race':32}{'runs':>5}{'shown':>7}{'median':>8}{'95 %':>6}  how often by what, and what was seen at last"]
    missed = []
    for race in races:
        seen = [r.shown[race] for r in runs if race in r.shown]
        counted = [r for r in runs if race in r.shown or r.spent[race] > 0]
        needed = sorted(s[0] for s in seen)
        ways = ", ".join(f"{count} {way}" for way, count in collections.Counter(s[1] for s in seen).most_common())
        if not counted or len(seen) < 0.95 * len(counted):
            missed.append(race)
        middle, most = (percentile(needed, 0.5), percentile(needed, 0.95)) if needed else ("-", "-")
        text.append(f"{race:32}{len(counted):5}{len(seen):7}{middle:>8}{most:>6}  {ways or 'not shown'}")
        if seen:
            text.append(f"    {seen[-1][2]}: {seen[-1][3][:170]}")
    calls, accused = sum((r.calls for r in runs), collections.Counter()), [text for r in runs for text in r.accused]
    text.append(f"{len(races) - len(missed)} of {len(races)} races shown in 95 % of {len(runs)} runs, {options.repetitions} repetitions a line, in {seconds:.0f} s")
    text.append(f"right kernels: {len(calls)}, repeated {sum(calls.values())} times in all, {len(accused)} accused")
    if options.in_step:
        text.append(f"in step on this device, not tried: {' '.join(options.in_step)}")
    return "\n".join(text + accused), bool(runs and races and calls) and not missed and not accused


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("assay")
    parser.add_argument("library")
    parser.add_argument("--suite", type=pathlib.Path, default=HERE / "races.suite")
    parser.add_argument("--repetitions", type=int, default=100)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--right-every", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--devices", type=lambda text: text.split(","), default=[])
    parser.add_argument("--races", nargs="*", default=[], help="these alone")
    parser.add_argument("--in-step", nargs="*", default=[])
    parser.add_argument("--rows-budget", type=float, default=1e5)
    parser.add_argument("--timeout", type=float, default=60)
    parser.add_argument("--seconds", type=float, default=1e6)
    parser.add_argument("--so-far", type=pathlib.Path)
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // options.jobs)))
    start, stop, ops = time.monotonic(), Stop(options.seconds), ops_of(options.assay, options.library)
    races = sorted(n for n in ops if not is_right(n) and n not in options.in_step and (not options.races or n in options.races))
    signal.signal(signal.SIGTERM, lambda *_: setattr(stop, "asked", True))
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        waiting = [pool.submit(one_run, options, number, ops, races, stop) for number in range(1, options.runs + 1)]
        runs = []
        for done in concurrent.futures.as_completed(waiting):
            run = done.result()
            if run.whole:  # of one that was stopped only what shows early would count
                runs.append(run)
            hidden = [] if run.whole else [f"{r} in {run.spent[r]}" for r in races if r not in run.shown and run.spent[r] > 0]
            print(f"run {run.number}: {len(run.shown)} of {len(races)} after {time.monotonic() - start:.0f} s; by line: "
                  + " ".join(f"{s:.1f}" for s in run.seconds.values()) + ("" if run.whole else "; not whole, not counted; not shown yet: " + (", ".join(hidden) or "-")),
                  file=sys.stderr, flush=True)
            if options.so_far:
                options.so_far.write_text(table(runs, races, options, time.monotonic() - start)[0] + "\n", encoding="utf-8")
    text, all_shown = table(runs, races, options, time.monotonic() - start)
    print(text)
    return 0 if all_shown else 1


if __name__ == "__main__":
    sys.exit(main())
