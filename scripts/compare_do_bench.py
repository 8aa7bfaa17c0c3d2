#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`--cache dirty` beside triton's do_bench: the same kernel, shapes and kind of values, in turn on one GPU.

Usage: compare_do_bench.py ASSAY LIBRARY KERNEL [--lengths N,...] [--masks full,causal] [--rounds R]

KERNEL is one for prefill. A round is a run of `assay bench` in a process of its own and two calls of do_bench here: as it is by default
(25 ms of warm-up, 100 ms of calls), and after three seconds of calls, as assay waits for a steady clock where the
arithmetic is the limit. Medians in us, clocks in MHz; the last column is assay's median over that of the second.
Needs torch, triton and a GPU; nothing else of the project does.
"""
import argparse
import csv
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from compare_torch import Call, load_kernel

HEADS, DIM = 16, 128


class Clock:
    """The multiprocessors' clock while something runs: its median."""

    def __init__(self):
        try:
            import pynvml
            pynvml.nvmlInit()
            handle = pynvml.nvmlDeviceGetHandleByIndex(0)
            self.read = lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)
        except Exception:  # of any kind: the clock is told where it can be
            self.read = lambda: float("nan")

    def median_during(self, work):
        seen, done = [], threading.Event()

        def watch():
            while not done.is_set():
                seen.append(self.read())
                time.sleep(0.005)

        watcher = threading.Thread(target=watch)
        watcher.start()
        result = work()
        done.set()
        watcher.join()
        return result, statistics.median(seen)


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
        return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("assay")
    parser.add_argument("library")
    parser.add_argument("kernel")
    parser.add_argument("--lengths", default="512,1024,2048,4096")
    parser.add_argument("--masks", default="full")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    import torch
    from triton.testing import do_bench
    _library, kernel = load_kernel(options.library, options.kernel)
    clock = Clock()
    print(f"{torch.cuda.get_device_name()}, {options.kernel}, h={HEADS} d={DIM} bf16")
    print(f"{'batch':8}{'mask':8}{'do_bench':>10}{'MHz':>6}{'sustained':>11}{'MHz':>6}{'assay':>9}{'from':>9}{'to':>9}{'MHz':>6}{'ratio':>7}")
    for mask in options.masks.split(","):
        for n in (int(x) for x in options.lengths.split(",")):
            generator = torch.Generator().manual_seed(n)
            q, k, v = (torch.randn(n, HEADS, DIM, generator=generator).to(torch.bfloat16).cuda() for _ in range(3))
            call = Call(torch, kernel, q, k, v, mask == "causal", 1)
            kept = []
            for number in range(options.rounds):
                row = assay_row(options, f"prefill h={HEADS} d={DIM} mask={mask} batch=1q{n} seed={number + 1}")
                short = clock.median_during(lambda: 1e3 * do_bench(call, return_mode="median"))
                long = clock.median_during(lambda: 1e3 * do_bench(call, warmup=3000, rep=1000, return_mode="median"))
                ours = [float(row[c] or "nan") for c in ("time_us", "time_low_us", "time_high_us", "sm_clock_mhz")]
                kept.append((long[0], ours[0]))
                print(f"1q{n:<6}{mask:8}{short[0]:10.2f}{short[1]:6.0f}{long[0]:11.2f}{long[1]:6.0f}{ours[0]:9.2f}{ours[1]:9.2f}{ours[2]:9.2f}{ours[3]:6.0f}"
                      f"{ours[0] / long[0]:7.3f}", flush=True)
            theirs, own = (statistics.median(x) for x in zip(*kept))
            print(f"1q{n:<6}{mask:8}of {options.rounds} medians: do_bench sustained {theirs:.2f}, assay {own:.2f}: {100 * (own / theirs - 1):+.1f} %", flush=True)


if __name__ == "__main__":
    main()
