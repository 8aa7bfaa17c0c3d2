#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`--cache dirty` beside triton's do_bench: the same kernel, shapes and kind of values, in turn on one GPU.

Usage: compare_do_bench.py ASSAY LIBRARY KERNEL [--lengths N,...] [--masks full,causal] [--rounds R] [--held SECONDS]

KERNEL is one for prefill. A round is a run of `assay bench` in a process of its own and two of do_bench here: as it is by default (25 ms
of warm-up, 100 ms of calls), and asked for SECONDS of calls, of which the last half counts (a device at its limit of power swings about once a second). Only the latter is in the state that assay waits for
where the arithmetic is the limit: a device meets its limit of power late, and do_bench warms up without overwriting the cache in between, which draws
more power than what is measured then. A process of its own reads clock and power meanwhile (of the last half of each); assay says its own clock.
Medians in us, clocks in MHz, power in W; "ratio": assay's median over that of the held calls. At the end of a length: medians of the rounds, the
least and the largest of each, and how many of assay's intervals hold the median that do_bench said in the same round.
Needs torch, triton, pynvml and a GPU; nothing else of the project does.
"""
import argparse
import csv
import multiprocessing
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import typing

from compare_torch import Call, load_kernel

HEADS, DIM = 16, 128


def watch(uuid, path):
    """Moment, clock (MHz) and power (W) of a GPU, a line each, until this process is ended."""
    import pynvml
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    with open(path, "w", buffering=1, encoding="ascii") as file:
        while True:
            clock, power = pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM), pynvml.nvmlDeviceGetPowerUsage(handle)
            file.write(f"{time.time():.4f} {clock} {power / 1000:.1f}\n")
            time.sleep(0.005)


class Watched:
    """What a process beside this one has read of the GPU: python that enqueues calls would read late."""

    def __init__(self, uuid, folder):
        self.path = pathlib.Path(folder) / "clock"
        self.process = multiprocessing.get_context("spawn").Process(target=watch, args=(uuid, self.path), daemon=True)
        self.process.start()
        while self.process.is_alive() and not (self.path.exists() and self.path.stat().st_size):
            time.sleep(0.01)
        if not self.process.is_alive():
            sys.exit("compare_do_bench: the clock of the GPU cannot be read (pynvml)")

    def between(self, begin, end):
        return seen_between(self.path.read_text(encoding="ascii").splitlines(), begin, end)


def seen_between(lines, begin, end):
    """Medians of clock and power from lines of watch(), the last of which may be torn; NaN where there is none."""
    seen = [(float(mhz), float(watts)) for at, mhz, watts in (line.split() for line in lines[:-1]) if begin <= float(at) <= end]
    return tuple(statistics.median(x) for x in zip(*seen)) if seen else (float("nan"),) * 2


class Round(typing.NamedTuple):
    short: float  # do_bench as it is, us
    held: float
    ours: float  # assay's, and its interval
    low: float
    high: float
    mhz: float  # of the held calls
    ours_mhz: float


def summary(rounds):
    def spread(values):
        return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"

    held, ours, mhz, ours_mhz = ([getattr(r, name) for r in rounds] for name in ("held", "ours", "mhz", "ours_mhz"))
    inside = sum(r.low <= r.held <= r.high for r in rounds)
    return (f"of {len(rounds)}: do_bench {spread([r.short for r in rounds])}, held {spread(held)} at {statistics.median(mhz):.0f} MHz, assay {spread(ours)} at "
            f"{statistics.median(ours_mhz):.0f}: {100 * (statistics.median(ours) / statistics.median(held) - 1):+.1f} %; held within {inside} of {len(rounds)} intervals")


def assay_row(options, line):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out"
        command = [options.assay, "bench", line, "--backend", options.library, "--kernel", options.kernel, "--cache", "dirty", "--rows-budget", "3e4", "--quiet",
                   "--no-table", "--out", str(out)]
        done = subprocess.run(command, capture_output=True, text=True)
        if not (out / "rows.csv").is_file():
            sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        with open(out / "rows.csv", newline="", encoding="utf-8") as file:
            row = next(r for r in csv.DictReader(file) if r["kernel"] == options.kernel)
        if row["outcome"] not in ("passed", "noisy"):
            sys.exit(f"{line}: {row['outcome']}: {row['reason']}")
        return [float(row[c] or "nan") for c in ("time_us", "time_low_us", "time_high_us", "sm_clock_mhz")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("assay")
    parser.add_argument("library")
    parser.add_argument("kernel")
    parser.add_argument("--lengths", default="512,1024,2048,4096,8192")
    parser.add_argument("--masks", default="full")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--held", type=float, default=3)
    options = parser.parse_args()
    import torch
    from triton.testing import do_bench
    _library, kernel = load_kernel(options.library, options.kernel)

    def timed(call, **how):
        """Times of do_bench, of all that it was asked for, and when their last half began and ended."""
        times = [1e3 * t for t in do_bench(call, return_mode="all", **how)]
        end = time.time()
        return times, end - how.get("rep", 100) / 2e3, end

    with tempfile.TemporaryDirectory() as folder:
        clock = Watched(f"GPU-{torch.cuda.get_device_properties(0).uuid}", folder)
        print(f"{torch.cuda.get_device_name()}, {options.kernel}, h={HEADS} d={DIM} bf16")
        print(f"{'batch':8}{'mask':8}{'do_bench':>10}{'MHz':>6}{'W':>5}{'held':>10}{'MHz':>6}{'W':>5}{'assay':>10}{'from':>10}{'to':>10}{'MHz':>6}{'ratio':>7}")
        for mask in options.masks.split(","):
            for n in (int(x) for x in options.lengths.split(",")):
                generator = torch.Generator().manual_seed(n)
                q, k, v = (torch.randn(n, HEADS, DIM, generator=generator).to(torch.bfloat16).cuda() for _ in range(3))
                call = Call(torch, kernel, q, k, v, mask == "causal", 1)
                kept = []
                for number in range(options.rounds):
                    ours, low, high, ours_mhz = assay_row(options, f"prefill h={HEADS} d={DIM} mask={mask} batch=1q{n} seed={number + 1}")
                    short, *when = timed(call)
                    short, (short_mhz, short_watts) = statistics.median(short), clock.between(*when)
                    held, *when = timed(call, rep=1000 * options.held)
                    held, (mhz, watts) = statistics.median(held[len(held) // 2:]), clock.between(*when)
                    kept.append(Round(short, held, ours, low, high, mhz, ours_mhz))
                    print(f"1q{n:<6}{mask:8}{short:10.2f}{short_mhz:6.0f}{short_watts:5.0f}{held:10.2f}{mhz:6.0f}{watts:5.0f}{ours:10.2f}{low:10.2f}{high:10.2f}"
                          f"{ours_mhz:6.0f}{ours / held:7.3f}", flush=True)
                print(f"1q{n:<6}{mask:8}{summary(kept)}", flush=True)


if __name__ == "__main__":
    main()
