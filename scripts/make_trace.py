#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the two small request traces that ship with assay, from a seed.

They exist so that trace-driven scenarios run without the public traces. Lengths are log-normal with
parameters of our own choosing (nothing is taken from any real trace); the formats are those of the
public ones. Uses only the standard library and integer-rounded output, so a seed gives the same bytes
with any Python 3.9 or newer.

    scripts/make_trace.py                    rewrites scenarios/traces/small.csv and small.jsonl
    scripts/make_trace.py --seed 2 --out X   other traces in folder X
"""
import argparse
import datetime
import json
import math
import pathlib
import random
import sys

BLOCK = 512  # tokens per id of hash_ids


def lognormal(rng, median, sigma, low, high):
    """A whole number with the given median and spread, cut to [low, high]."""
    return max(low, min(high, round(median * math.exp(rng.gauss(0.0, sigma)))))


def azure_rows(rng, count):
    """Independent requests: two kinds (chat turns, long documents), bursts of arrivals."""
    clock = datetime.datetime(2025, 1, 1, 9, 0, 0)
    for _ in range(count):
        burst = rng.random() < 0.3
        clock += datetime.timedelta(microseconds=round(rng.expovariate(1.0) * (20_000 if burst else 400_000)))
        if rng.random() < 0.85:
            context, generated = lognormal(rng, 600, 0.9, 8, 4000), lognormal(rng, 90, 0.8, 1, 600)
        else:
            context, generated = lognormal(rng, 3500, 0.5, 1000, 12000), lognormal(rng, 40, 0.7, 1, 300)
        # Seven decimals, as .NET ticks print.
        yield f"{clock:%Y-%m-%d %H:%M:%S}.{clock.microsecond:06d}0", context, generated


def mooncake_rows(rng, count):
    """Conversations over a few system prompts; a turn repeats the conversation so far as its prefix."""
    next_id = 0

    def fresh(n):
        nonlocal next_id
        ids = list(range(next_id, next_id + n))
        next_id += n
        return ids

    systems = [fresh(n) for n in (1, 3, 2)]
    open_turns = []  # full prefix blocks of conversations that may go on
    clock_ms = 0
    for _ in range(count):
        clock_ms += round(rng.expovariate(1.0) * 250)
        if open_turns and rng.random() < 0.45:
            prefix = open_turns.pop(rng.randrange(len(open_turns)))
            new_tokens = lognormal(rng, 700, 0.8, 16, 6000)
        else:
            prefix = systems[rng.choices(range(len(systems)), weights=(5, 2, 1))[0]]
            new_tokens = lognormal(rng, 1500, 1.0, 16, 16000)
        length = len(prefix) * BLOCK + new_tokens
        ids = prefix + fresh(-(-length // BLOCK) - len(prefix))
        output = lognormal(rng, 120, 0.8, 1, 800)
        open_turns.append(ids[: length // BLOCK])
        yield {"timestamp": clock_ms, "input_length": length, "output_length": output, "hash_ids": ids}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parent.parent
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=pathlib.Path, default=root / "scenarios" / "traces")
    args = parser.parse_args()
    try:
        args.out.mkdir(parents=True, exist_ok=True)
        rng = random.Random(args.seed)
        lines = ["TIMESTAMP,ContextTokens,GeneratedTokens"]
        lines += [f"{stamp},{context},{generated}" for stamp, context, generated in azure_rows(rng, 300)]
        (args.out / "small.csv").write_text("\n".join(lines) + "\n", encoding="ascii")
        lines = [json.dumps(row) for row in mooncake_rows(rng, 150)]
        (args.out / "small.jsonl").write_text("\n".join(lines) + "\n", encoding="ascii")
    except OSError as error:
        print(f"make_trace: cannot write to {args.out}: {error.strerror}", file=sys.stderr)
        return 2
    print(f"wrote {args.out / 'small.csv'} and {args.out / 'small.jsonl'} (seed {args.seed})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
