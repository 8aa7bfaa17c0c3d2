#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows every fault planted in GPU kernels to the emulator's checker and to the judge, and prints what killed it.

Usage: kill_faults.py ASSAY LIBRARY LANES [--suite FILE] [--only PREFIX,... --kernel NAME,...]

LIBRARY is libassay_gpu_faults32.so, 64.so or _sm90.so of the build's emulator/ folder; the last has only some of its files planted, so --only names the
faults that are in it and --kernel the kernels that they are planted in. The lines of faults.suite are tried in order on the faults still
alive. Exit 0: the kernels without a fault pass every line, and every fault is dead; at 32 lanes those whose name ends in 64 must
live, because there they are none, and the other way round. Exit 1 otherwise.
"""
import argparse
import pathlib
import re
import sys

from checked import ops_of, rows_of

HERE = pathlib.Path(__file__).resolve().parent


def check(assay: str, library: str, line: str, kernels: list[str]) -> dict[str, tuple[str, str]]:
    """Outcome and reason of each kernel on one line."""
    what = [line.removeprefix("--graphs "), "--graphs"] if line.startswith("--graphs ") else [line]
    return {row["kernel"]: (row["outcome"], row["reason"]) for row in rows_of(assay, library, what, kernels)}


def killer(outcome: str, reason: str) -> str:
    found = re.search(r": ([a-z ]+) in .*? at ([\w.]+:\d+)", reason)
    return f"checker: {found[1]}, {found[2]}" if found else f"judge: {reason.split(', worst')[0]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("assay")
    parser.add_argument("library")
    parser.add_argument("lanes", type=int, choices=(32, 64))
    parser.add_argument("--suite", type=pathlib.Path, default=HERE / "faults.suite")
    parser.add_argument("--only", default="", help="faults whose names begin so, or so, ...")
    parser.add_argument("--kernel", default="", help="the kernels without a fault to try")
    options = parser.parse_args()
    lines = [s for s in options.suite.read_text(encoding="utf-8").splitlines() if s and not s.startswith("#")]
    ops = ops_of(options.assay, options.library)
    right = [n for n in ops if n.endswith(("_gpu", "_sm90"))]
    healthy = [n for n in right if not options.kernel or n in options.kernel.split(",")]
    alive = [n for n in ops if n not in right and n.startswith(tuple(options.only.split(",")))]
    planted = len(alive)
    if not healthy or planted < (10 if options.only else 30):
        sys.exit(f"{options.library} lists {len(healthy)} kernels without a fault and {planted} with one; expected both")
    problems, passed = [], set()
    print(f"{'fault':28}killed by ({options.lanes} lanes)")
    for number, line in enumerate(lines, 1):
        tried = [n for n in healthy + alive if ops[n] == line.removeprefix("--graphs ").split()[0]]
        if not tried:  # none would mean all
            continue
        for name, (outcome, reason) in check(options.assay, options.library, line, tried).items():
            if name in healthy:
                # Of whole steps each pipeline takes its own, and so does a kernel for one chip of shapes.
                if outcome == "passed":
                    passed.add(name)
                elif outcome != "unsupported" or not (ops[name] == "step" or name.endswith("_sm90")):
                    problems.append(f"{name} has no fault and does not pass: {outcome}: {reason}\n  {line}")
            elif outcome not in ("passed", "unsupported"):
                print(f"{name:28}line {number}: {killer(outcome, reason)}")
                alive.remove(name)
    here_none = [n for n in alive if n.endswith(str(32 + 64 - options.lanes))]
    for name in alive:
        print(f"{name:28}{'no fault at this width' if name in here_none else 'ALIVE'}")
        if name not in here_none:
            problems.append(f"{name} survives every line of {options.suite}")
    # A kernel that was asked for passes something; of a whole library many kernels are of ops that the suite has no line of.
    problems += [f"{name} has no fault and passes no line" for name in healthy if options.kernel and name not in passed]
    print(f"{planted - len(alive)} of {planted} killed")
    for text in problems:
        print(text, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
