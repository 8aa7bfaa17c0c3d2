#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`--cache dirty` beside triton's do_bench: the same kernel, shapes and kind of values, in turn on one GPU.

Usage: compare_do_bench.py ASSAY LIBRARY KERNEL [--lengths N,...] [--masks full,causal] [--rounds R]

KERNEL is one for prefill. A round is a run of `assay bench` in a process of its own and three of do_bench here: as it is by default
(25 ms of warm-up, 100 ms of calls); after a warm-up of one second; and asked for four seconds of calls, of which the last one counts.
Only the third is in the state that assay waits for where the arithmetic is the limit: do_bench's warm-up calls the kernel without overwriting
the cache in between, which draws more power than what is measured then, so that the clock is still on its way up. Medians in us, clocks in
MHz; the last column is assay's median over that of the third.
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
    """The multiprocessors' clock while something runs: its median, of the last `share` of the time."""

    def __init__(self):
        try:
            import pynvml
            pynvml.nvmlInit()
            handle = pynvml.nvmlDeviceGetHandleByIndex(0)
            self.read = lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)
        except Exception:  # of any kind: the clock is told where it can be
            self.read = lambda: float("nan")

    def median_during(self, work, share=1.0):
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
        return result, statistics.median(seen[int(len(seen) * (1 - share)):])


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
    print(f"{'batch':8}{'mask':8}{'do_bench':>10}{'MHz':>6}{'warmed':>9}{'MHz':>6}{'4 s':>9}{'MHz':>6}{'assay':>9}{'from':>9}{'to':>9}{'MHz':>6}{'ratio':>7}")
    for mask in options.masks.split(","):
        for n in (int(x) for x in options.lengths.split(",")):
            generator = torch.Generator().manual_seed(n)
            q, k, v = (torch.randn(n, HEADS, DIM, generator=generator).to(torch.bfloat16).cuda() for _ in range(3))
            call = Call(torch, kernel, q, k, v, mask == "causal", 1)
            kept = []
            for number in range(options.rounds):
                row = assay_row(options, f"prefill h={HEADS} d={DIM} mask={mask} batch=1q{n} seed={number + 1}")
                short = clock.median_during(lambda: 1e3 * do_bench(call, return_mode="median"))
                warmed = clock.median_during(lambda: 1e3 * do_bench(call, warmup=1000, rep=300, return_mode="median"), 0.2)
                times, mhz = clock.median_during(lambda: do_bench(call, rep=4000, return_mode="all"), 0.25)
                long = 1e3 * statistics.median(times[len(times) * 3 // 4:])
                ours = [float(row[c] or "nan") for c in ("time_us", "time_low_us", "time_high_us", "sm_clock_mhz")]
                kept.append((long, ours[0]))
                print(f"1q{n:<6}{mask:8}{short[0]:10.2f}{short[1]:6.0f}{warmed[0]:9.2f}{warmed[1]:6.0f}{long:9.2f}{mhz:6.0f}{ours[0]:9.2f}{ours[1]:9.2f}{ours[2]:9.2f}"
                      f"{ours[3]:6.0f}{ours[0] / long:7.3f}", flush=True)
            theirs, own = (statistics.median(x) for x in zip(*kept))
            print(f"1q{n:<6}{mask:8}of {options.rounds} medians: do_bench {theirs:.2f}, assay {own:.2f}: {100 * (own / theirs - 1):+.1f} %", flush=True)


if __name__ == "__main__":
    main()
