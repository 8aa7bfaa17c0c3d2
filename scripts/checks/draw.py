#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which of the slow work of CI falls to a tree. Whole, it takes slow machines longer than one waits, and almost every part of it says of almost every tree what
it said of the last one: so each tree draws one group of each draw below, by its hash (the same one when it is judged again), and a few dozen have drawn
all of them. The others are neither compiled nor run, the last lines of scripts/test name them, and scripts/test --full (nightly too) takes all.

Never left out: a test that is not named here; a group whose code (CODE) is not what was last seen to pass whole (results/seen_whole.txt); all families of
emulated device code where the emulator is not. Where kernels are not, the draw is among the families that have them, until they are noted: the last lines
say so. (Trees whose device code was not looked at take everything: scripts/checks/looked_at.)

Usage: draw.py --groups all|tree|HASH           the groups drawn, a line (cmake/Draw.cmake)
       draw.py --modules DRAWN                  modules whose tests are left out, as GROUP=MODULE (cmake/Draw.cmake)
       draw.py --exclude DRAWN                  what ctest is to leave out (-E); DRAWN: the file of the groups drawn, build/draw.txt
       draw.py --left-out DRAWN TESTS.json      a line per group left out; TESTS.json: ctest --show-only=json-v1
       draw.py --record BUILD                   runs what of CODE has changed in BUILD (preset default, ci, quick or sample) and, where it passes, notes it
                                                in results/seen_whole.txt; commit that file
"""
import collections
import hashlib
import json
import pathlib
import re
import subprocess
import sys

from code_hash import code_hash

ROOT = pathlib.Path(__file__).resolve().parents[2]
NOTED = "results/seen_whole.txt"

# Device code on the emulator: libraries of which each is minutes to compile, and the tests that load or link them. Names begin so; [.] is a dot.
EMULATED = {
    "lanes32": ["emu32[.]", "emu32_check[.]", "gpu[.]emu32[.]", "gpu[.]PeerExchanges[.]", "emulator[.]EmulatedStreams[.]", "program[.]emulator[.](emu32|topics32|cut|lanes|many_rows|walks)$",
                "program[.]emulator[.]graphs[.]emu32$", "program[.]emulator[.]ranks(|[.]wide)$", ".*emulator/libassay_emu32[.]so",
                "emulator[.]Backends/(FarPages|Tiles)[.].*emu32", "check[.](StepWalks|BlockReplays|DeterministicStep)[.]"],
    "lanes64": ["emu64[.]", "emu64_check[.]", "gpu[.]emu64[.]", "program[.]emulator[.](emu64|topics64)$", "program[.]emulator[.]graphs[.]emu64_check$",
                "program[.]emulator[.]ranks[.]check$", ".*emulator/libassay_emu64[.]so", ".*emulator/libassay_emu64_check[.]so", "emulator[.]Backends/FarPages[.].*emu64"],
    "sm90": ["emu_sm90[.]", "emu_sm90_check[.]", "program[.]emulator[.]sm90", "program[.]gpu_faults_sm90$", "program[.]choices$", ".*emulator/libassay_emu_sm90[.]so",
             "emulator[.]Backends/Tiles[.].*emu_sm90"],
    "planted": ["program[.]gpu_faults(32|64)$", "program[.]gpu_races32"],
}

# Tests that take long and go over what quick ones touch, with the seconds of all that begin so as ctest has noted them (CTestCostData.txt of a build of
# c01b5337, three tests at a time on two slow cores): groups are to be alike.
SLOW = {
    "engines": {"explain[.]ExplainEngines[.]": 142, "explain[.]ExplainServers[.]": 32},
    "steps": {"explain[.]ExplainSteps[.]": 75, "explain[.]Composed[.]": 62, "explain[.]ThirdLine[.]": 19, "explain[.]Addresses[.]": 18},
    "scores": {"explain[.]ScoreOfFaults[.]": 110, "program[.]explain_score$": 84},
    "faults": {"explain[.]Explain[.]": 69, "explain[.]SecondLine[.]": 40, "explain[.]Fragments[.]": 27, "faulty[.]BoundaryFaults[.]": 25, "program[.]Facts[.]": 15},
    "catalogues": {"program[.]mutants_quick$": 73, "power[.]Power[.]": 52, "program[.]campaign_alarms$": 47, "cover[.]Cover[.]FourteenAxes": 11},
    "scripts": {"python[.]report$": 77, "python[.]plots$": 76, "program[.]Table/HostileKernels[.]": 48, "program[.]Hostile[.]": 38},
    # With the step of scripts/test that makes a machine with nothing on it: minutes of unpacking beside the build.
    "machine": {"python[.]backends$": 100, "program[.]door$": 32},
}
LEAST = 10  # seconds: what takes less is never drawn

# Modules whose tests take longest to compile, or long to run; always taken where they themselves change.
MODULES = {"numbers": ["reference", "input", "problem"], "judging": ["check"], "running": ["run", "scenario", "mutants", "campaign", "report", "calibrate"]}

DRAWS = {"emulated": EMULATED, "slow": {group: list(patterns) for group, patterns in SLOW.items()},
         "modules": {group: [f"{module}[.]" for module in modules] for group, modules in MODULES.items()}}

# Of what the groups are made that a change has taken, or drawn first; host code of emulated kernels is among it.
PORTABLE = ["harness/abi", "harness/problem", "kernels/common", "kernels/device", "kernels/dialect", "kernels/emulator", "kernels/portable"]
CODE = {**{group: ["reference" if module == "reference" else f"harness/{module}" for module in modules] for group, modules in MODULES.items()},
        **dict.fromkeys(["engines", "steps", "scores", "faults"], ["harness/explain"]),
        "machine": ["scripts/setup", "scripts/requirements.txt", "scripts/checks/fresh_machine", "scripts/checks/door"],
        "emulator": ["kernels/emulator"], "lanes32": PORTABLE, "lanes64": PORTABLE, "planted": PORTABLE, "sm90": [*PORTABLE, "kernels/cuda", "kernels/sm90"]}


def patterns_of(group):
    """Regular expressions, from the beginning of a test's name, in the dialect that CMake and Python share."""
    # Programs that are not built have a place holder of this name.
    return [f"{group}[.]program[.]", *next(groups[group] for groups in DRAWS.values() if group in groups)]


def groups_of(test):
    """The groups of a test, one of a draw at most: it runs where all of them are drawn."""
    found = []
    for name, groups in DRAWS.items():
        mine = [group for group in groups if any(re.match(p, test) for p in patterns_of(group))]
        if len(mine) > 1:
            raise ValueError(f"{test} is in the groups {', '.join(mine)} of the draw {name}")
        found += mine
    return found


def pick(draw, tree, among=()):
    groups = [group for group in DRAWS[draw] if not among or group in among]
    return groups[int(hashlib.sha256(f"{draw} {tree}".encode()).hexdigest(), 16) % len(groups)]


def code_of(group, root=ROOT):
    """A hash of the group's code as it lies here, committed or not; None outside of a repository."""
    def kept(file):
        if group in ("emulator", *EMULATED) and (not re.search(r"\.(cu|h|hpp|cpp|edit|suite)$", file) or file.endswith("_test.cpp")):
            return False
        if group in ("lanes32", "lanes64", "planted") and re.match(r"kernels/emulator/(sm90/|faults/(edits/sm90/|faults_sm90))", file):
            return False
        return not file.endswith(".md")
    return code_hash(root, CODE[group], kept)


def seen(root=ROOT):
    """The code that was last seen to pass whole, by group."""
    noted = pathlib.Path(root) / NOTED
    return dict(line.split() for line in noted.read_text().splitlines()) if noted.is_file() else {}


def changed(root=ROOT):
    """The groups whose code is another one now."""
    noted = seen(root)
    return [group for group in CODE if group not in noted or code_of(group, root) != noted[group]]


def drawn(tree, root=ROOT):
    """All groups of this tree, in the order of the table."""
    names = [group for groups in DRAWS.values() for group in groups]
    if tree == "all":
        return names
    if tree == "tree":
        done = subprocess.run(["git", "-C", root, "rev-parse", "HEAD^{tree}"], capture_output=True, text=True)
        tree = done.stdout.strip() if done.returncode == 0 else "29463ea5"  # sources without their history
    elif not re.fullmatch("[0-9a-f]{7,64}", tree):
        raise SystemExit(f"draw: {tree} is neither all, tree nor the hash of a tree")
    new = set(changed(root))
    mine = new - set(EMULATED) | (set(EMULATED) if "emulator" in new else set())
    for draw in DRAWS:
        mine.add(pick(draw, tree, new & set(EMULATED) if draw == "emulated" else ()))
    return [group for group in names if group in mine]


def left_out(file):
    """The groups that the file of those drawn does not have."""
    names = [group for groups in DRAWS.values() for group in groups]
    if not pathlib.Path(file).exists():  # a build with all
        return []
    mine = pathlib.Path(file).read_text().split()
    unknown = set(mine) - set(names)
    if unknown:
        raise SystemExit(f"draw: {file} has the groups {', '.join(sorted(unknown))}, which no draw knows")
    return [group for group in names if group not in mine]


def exclude(file):
    patterns = [p for group in left_out(file) for p in patterns_of(group)]
    return f"^({'|'.join(patterns)})" if patterns else ""


def say_left_out(file, listed, root=ROOT):
    """Lines of what is left out, how many tests and programs of tests each; a test of two groups is one of the first."""
    count, out = collections.Counter(), left_out(file)
    for test in json.loads(pathlib.Path(listed).read_text())["tests"]:
        group = next((group for group in groups_of(test["name"]) if group in out), None)
        count[group, test["name"].startswith(f"{group}.program.")] += 1
    lines = [f"left out {count[group, False]} tests" + (f" and {count[group, True]} programs of tests" if count[group, True] else "") + f": {group}" for group in out]
    new = changed(root) if out else []
    if out:
        lines.append("left out by this tree's draw; other trees draw others, scripts/test --full takes all")
    if new:
        lines.append(f"changed since they passed whole, so taken, or of emulated kernels drawn first, until draw.py --record notes them: {', '.join(new)}")
    return lines


def record(build):
    """Notes the groups that have changed, when their tests pass in this build."""
    before = {group: code_of(group) for group in CODE}
    groups = changed()
    if None in before.values():
        raise SystemExit("draw: what is not in a repository cannot be noted")
    if set(left_out(pathlib.Path(build) / "draw.txt")) & set(groups):
        raise SystemExit(f"draw: {build} has only what a tree drew; scripts/build ci")
    print(f"draw: to be noted: {' '.join(groups) or 'nothing'}", flush=True)
    if not groups:
        return
    subprocess.run(["cmake", "--build", build], check=True, stdout=subprocess.DEVNULL)
    if "machine" in groups:
        subprocess.run([ROOT / "scripts/checks/fresh_machine", "--setup-only", "--worktree"], check=True)
    names = "|".join(p for group in (set(groups) | set(EMULATED) if "emulator" in groups else groups) if group != "emulator" for p in patterns_of(group)[1:])
    done = subprocess.run(["ctest", "--test-dir", build, "--output-on-failure", "--no-tests=error", "-j", "3", "-R", f"^({names})"])
    if done.returncode != 0 or before != {group: code_of(group) for group in CODE}:
        raise SystemExit("draw: they do not pass, or their code has changed meanwhile")
    noted = seen() | {group: before[group] for group in groups}
    (ROOT / NOTED).write_text("".join(f"{group} {noted[group]}\n" for group in CODE))


def main(argv):
    if argv[:1] == ["--groups"] and len(argv) == 2:
        print(" ".join(drawn(argv[1])))
    elif argv[:1] == ["--modules"] and len(argv) == 2:
        print(" ".join(f"{group}={module}" for group in left_out(argv[1]) for module in MODULES.get(group, [])))
    elif argv[:1] == ["--exclude"] and len(argv) == 2:
        print(exclude(argv[1]))
    elif argv[:1] == ["--left-out"] and len(argv) == 3:
        print("".join(f"{line}\n" for line in say_left_out(*argv[1:])), end="")
    elif argv[:1] == ["--record"] and len(argv) == 2:
        record(argv[1])
    else:
        print(__doc__.split("Usage: ")[1], file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
