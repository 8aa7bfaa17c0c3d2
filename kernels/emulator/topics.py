#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the topic suites on the portable kernels under the emulator with its checker, and shows what each kernel passed of each topic.

Usage: topics.py ASSAY LANES [--every N --turn K] [--of-each N] [--spread N] [--largest MULTIPLY-ADDS] [--topic NAME...] [--out DIR]

An emulated kernel takes about a thousand times as long as a real one, so a run selects: cases of more multiply-adds than --largest are left out
(as `assay list --largest` leaves them out), and of the rest, in the order of the suite and counted for each op by itself, every N-th from the K-th
on, or more often where fewer than --of-each would come; and N cases of --spread that show what is rare: in all topics together, of a third of --largest, in turn the one with most values of fields that none
before it has (of 2 N, runs with an even --turn take the first, third, ... and the others the rest). The same command selects the same cases on every machine. Without these options every case runs; that takes hours.

Exit 0: every row passed, and every kernel of the library has passed at least --least cases of every topic that holds cases of its op (all of
them where fewer were selected); of all topics together, some of them. Exit 1 otherwise. The table says how many rows passed, and how many cases were left out by which rule.
"""
import argparse
import collections
import csv
import json
import pathlib
import subprocess
import sys
import tempfile

TOPICS = ("masks", "layouts", "formats", "lengths", "extremes", "models", "structured", "relations", "data_ops", "metadata", "steps_smoke", "steps")
# Taken whole, whatever --every says: each phase of each pipeline once. So of the suite with their edges half as many will do.
WHOLE = ("steps_smoke",)
FEWER = {"steps": 2}


def cases_of(assay: str, topic: str, largest: float | None) -> list[str]:
    command = [assay, "list", topic] + ([] if largest is None else ["--largest", f"{largest:g}"])
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout.splitlines()


def select(topic: str, lines: list[str], every: int, turn: int, of_each: int = 1) -> list[str]:
    """Every N-th line of each op from the turn-th on, or its last. Lines of several ranks, which have kernels of their own, count apart: two at least.
    Of an op whose lines are few every line of a shorter step, so that of_each of them come: what one kernel refuses another line may ask of it."""
    if topic in WHOLE:
        return lines
    if every > 1:
        every *= FEWER.get(topic, 1)
    by_kind = collections.defaultdict(list)
    for line in lines:
        by_kind[line.split()[0], " ranks=" in line].append(line)
    chosen = set()
    for (_, of_ranks), of_kind in by_kind.items():
        step = every if of_each == 1 else max(1, min(every, len(of_kind) // of_each))
        in_turn = of_kind[turn % step :: step]
        chosen.update(in_turn if len(in_turn) > of_ranks else of_kind[-1 - of_ranks :])
    return [line for line in lines if line in chosen]


def values(line: str) -> frozenset[tuple[str, ...]]:
    """What a line shows: its op, and that with every word but those that differ in nearly every line."""
    op, *words = line.split()
    return frozenset([(op,), *((op, word) for word in words if not word.startswith(("seed=", "batch=")))])


def spread(pools: dict[str, list[str]], count: int, turn: int) -> set[tuple[str, str]]:
    """Topics and lines: every second of the 2 `count` lines that show most together, chosen one after the other."""
    rest = [(topic, line, values(line)) for topic, lines in pools.items() if topic not in WHOLE for line in lines]
    missing = frozenset().union(*(shown for *_, shown in rest))
    picked = []
    while missing and len(picked) < 2 * count:
        topic, line, shown = max(rest, key=lambda each: len(each[2] & missing))
        picked.append((topic, line))
        missing -= shown
    return set(picked[turn % 2 :: 2])


def run(assay: str, backend: str, lines: list[str], suite: pathlib.Path, out: pathlib.Path) -> tuple[list[dict], dict[str, str]]:
    """Rows of the cases, and the op of every kernel of the library."""
    suite.write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = [assay, "check", str(suite), "--backend", backend, "--out", str(out), "--quiet", "--no-table"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    with open(out / "rows.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    facts = json.loads((out / "run.json").read_text(encoding="utf-8"))
    return rows, {k["name"]: k["op"] for b in facts["backends"] for k in b["kernels"]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("assay")
    parser.add_argument("lanes", type=int, choices=(32, 64))
    parser.add_argument("--every", type=int, default=1, metavar="N", help="one case in N")
    parser.add_argument("--turn", type=int, default=0, metavar="K", help="which of every N: the K-th, from 0")
    parser.add_argument("--of-each", type=int, default=1, metavar="N", help="cases of every op in every topic at least, where it has so many")
    parser.add_argument("--spread", type=int, default=0, metavar="N", help="and N cases with rare values")
    parser.add_argument("--largest", type=float, metavar="NUMBER", help="most multiply-adds of a case")
    parser.add_argument("--topic", nargs="+", default=list(TOPICS), metavar="NAME", help=f"of {', '.join(TOPICS)}, or any suite")
    parser.add_argument("--least", type=int, default=2, metavar="N", help="passed cases of a kernel in a topic that suffice (default 2)")
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR", help="keep a results folder per topic here")
    options = parser.parse_args()
    if options.every < 1 or options.turn < 0 or options.of_each < 1 or options.spread < 0:
        parser.error("--every and --of-each want at least 1, --turn and --spread at least 0")
    backend = f"emu{options.lanes}_check"
    passed, selected = collections.Counter(), collections.Counter()
    ops: dict[str, str] = {}
    problems = []
    print(f"{'topic':12}{'cases':>7}{'too large':>11}{'other turns':>13}")
    with tempfile.TemporaryDirectory() as temporary:
        kept = options.out or pathlib.Path(temporary)
        kept.mkdir(parents=True, exist_ok=True)
        every_case = {topic: cases_of(options.assay, topic, None) for topic in options.topic}
        small_ones = {topic: cases_of(options.assay, topic, options.largest) for topic in options.topic} if options.largest else every_case
        smaller = {topic: cases_of(options.assay, topic, options.largest / 3) for topic in options.topic} if options.largest and options.spread else small_ones
        rare = spread(smaller, options.spread, options.turn)
        for topic, small in small_ones.items():
            in_turn = frozenset(select(topic, small, options.every, options.turn, options.of_each))
            lines = [line for line in small if line in in_turn or (topic, line) in rare]
            print(f"{topic:12}{len(lines):7}{len(every_case[topic]) - len(small):11}{len(small) - len(lines):13}", flush=True)
            selected.update((topic, line.split()[0]) for line in lines)
            name = pathlib.Path(topic).stem
            rows, of_topic = run(options.assay, backend, lines, kept / f"{name}{options.lanes}.suite", kept / f"{name}{options.lanes}")
            ops.update(of_topic)
            passed.update((topic, row["kernel"]) for row in rows if row["outcome"] == "passed")
            problems += [
                f"{row['outcome']}: {row['kernel']}: {row['reason']}\n  assay check '{row['scenario']}' --backend {backend} --kernel {row['kernel']}"
                for row in rows
                if row["outcome"] not in ("passed", "unsupported")
            ]
    print(f"\npassed rows ({options.lanes} lanes)".ljust(29) + "".join(f"{pathlib.Path(t).stem:>11}" for t in options.topic))
    for kernel, op in ops.items():
        cells = [str(passed[t, kernel]) if selected[t, op] else "-" for t in options.topic]
        print(f"  {kernel:26}" + "".join(f"{c:>11}" for c in cells))
        for topic in options.topic:
            if passed[topic, kernel] < min(options.least, selected[topic, op]):
                problems.append(f"{kernel} passed {passed[topic, kernel]} of {selected[topic, op]} cases of {topic}, wanted {options.least}")
        if options.topic == list(TOPICS) and not any(selected[t, op] for t in TOPICS):
            problems.append(f"{kernel}: no topic holds a case of {op}")
    for text in problems:
        print(text, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
