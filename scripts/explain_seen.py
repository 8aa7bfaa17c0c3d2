#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Explains the faults that others planted, and counts what `assay explain` says of them.

    scripts/explain_seen.py TABLE [--build build] [--jobs 2] [--set NAME] [--without] [--save FILE] [--against FILE]

TABLE names a set, a fault, the causes that are right, and the line of each fault (explain_seen.csv beside the recorded
measurements); the libraries are built from the sources packed there. A cell of `accepted` is causes joined by |, two of
them joined by & where two faults are planted at once, `none` where no cause says it. Classes:

    right       sure of a right cause (all that stands beside it is the same on the line), by any name that the answer gives
                it ("also called"), or "none" where that is right
    same        a right cause is named as the same on the line as the one that stands first
    tie         a right cause is among several joined by "or"
    wrong       sure, and of no right cause, or of a second one that is not there
    first       not sure, a right cause ranks first
    none        not sure otherwise
    not wrong   the kernel passes
"""
import argparse
import collections
import concurrent.futures
import csv
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent  # some include what the headers lie under there

# Set: the file packed beside the table, the source in it.
SOURCES = {
    "3": ("explain_stranger_3.tar.xz", "faults/stranger.cpp"),
    "4": ("explain_stranger_4.tar.xz", "stranger_4/stranger.cpp"),
    "5": ("explain_stranger_5.tar.xz", "explain_stranger_5/paged5.cpp"),
    "6": ("explain_stranger_6.tar.xz", "explain_stranger_6/src/s6.cpp"),
    "7": ("explain_stranger_7.tar.xz", "stranger/kernel/kern.cpp"),
    "8": ("explain_stranger_8.tar.xz", "stranger_8/stranger.cpp"),
    "9": ("explain_stranger_9.tar.xz", "stranger_9/stranger.cpp"),
    "13": ("explain_stranger_13.tar.xz", "stranger_13/lib.cpp"),
    "14": ("explain_stranger_14.tar.xz", "stranger_14/kernels/eng.cpp"),
    "14s": ("explain_stranger_14.tar.xz", "stranger_14/steps/src/engine.cpp"),
    "15a": ("explain_stranger_15.tar.xz", "stranger_15/a/strangera.cpp"),
    "15b": ("explain_stranger_15.tar.xz", "stranger_15/b/engine.cpp"),
    "16": ("explain_stranger_16.tar.xz", "stranger_16/strangerc.cpp"),
    "17": ("explain_stranger_17.tar.xz", "stranger_17/k.cpp"),
    "18": ("explain_stranger_18.tar.xz", "stranger_18/main.cpp"),
    "19": ("explain_stranger_19.tar.xz", "stranger_19/src/k.cpp"),
    "20": ("explain_stranger_20.tar.xz", "stranger_20/src/core.cpp"),
    "21": ("explain_stranger_21.tar.xz", "stranger_21/src/lib.cpp"),
    "22": ("explain_stranger_22.tar.xz", "stranger_22/src/strangeri.cpp"),
    "23": ("explain_stranger_23.tar.xz", "stranger_23/src/strangerj.cpp"),
    "own": ("explain_own_5.tar.xz", "explain_own/own.cpp"),
}


def library(name, packed, build, folder):
    archive, source = SOURCES[name]
    with tarfile.open(packed / archive) as tar:
        tar.extractall(folder)
    path = folder / source
    out = folder / f"lib{name}.so"
    command = ["g++", "-std=c++20", "-O2", "-w", "-fPIC", "-shared", "-I", build / "include", "-I", build / "include/assay",
               "-I", path.parent, "-I", ROOT, path,
               build / "libassay_kit_cpu.a", "-lpthread", "-o", out]
    subprocess.run([str(c) for c in command], check=True)
    return out


def explain(program, row, backend, without, until):
    left = until - time.monotonic()
    if left <= 0:
        return None
    command = [program, "explain", row["line"], "--kernel", row["fault"], "--backend", backend, "--json", "-"]
    if without:
        for cause in sorted({c for side in accepted(row) for c in side} - {"none"}):
            command += ["--without", cause]
    try:
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=min(300, left + 30))
        return alike(json.loads(done.stdout))
    except (subprocess.TimeoutExpired, json.JSONDecodeError) as error:
        return {"outcome": f"no answer ({type(error).__name__})", "causes": [], "sure": False, "seconds": 0}


def alike(answer):
    """The answer of a step, in the words of one about attention: what is said beside the first cause is an "or"."""
    causes = answer["causes"]
    if "equally_good" not in answer:
        good = sum(c["explained"] >= causes[0]["explained"] and c["spoilt"] <= causes[0]["spoilt"] for c in causes)
        answer |= {"equally_good": good, "explained_there": 1}
        for c in causes:
            c |= {"also": "", "same_as_first": False, "misfit": 0}
    return answer


def accepted(row):
    return [set(side.split("|")) for side in row["accepted"].split("&")]


def holds(row, cause):
    sides = accepted(row)
    if len(sides) == 1:
        # All that the answer calls it is said of it.
        names = {cause["cause"], *cause.get("also_called", [])}
        return bool(names & sides[0]) and (not cause["also"] or cause["also"] in sides[0])
    a, b = cause["cause"], cause["also"]
    return any(a in sides[i] and b in sides[1 - i] for i in (0, 1))


def grade(row, answer):
    sides = accepted(row)
    if answer["outcome"] != "wrong" and not answer["causes"]:
        return "not wrong" if answer["outcome"] == "passed" else "no answer"
    causes = answer["causes"]
    if not answer["sure"]:
        if "none" in sides[0]:
            return "right"
        named = causes and any(causes[0]["cause"] in side for side in sides)
        return "first" if named else "none"
    best = causes[: answer["equally_good"]]
    others = [c for c in best[1:] if not c["same_as_first"]]
    if holds(row, best[0]):
        return "right" if all(holds(row, c) for c in others) else "tie"
    if any(holds(row, c) and c["same_as_first"] for c in best[1:]):
        return "same" if all(holds(row, c) for c in others) else "tie"
    return "tie" if any(holds(row, c) for c in others) else "wrong"


def said(answer):
    if not answer["causes"]:
        return answer["outcome"]
    text = "sure" if answer["sure"] else "none"
    if answer["explained_there"] < 1:
        text += f" (there {100 * answer['explained_there']:.0f} %)"
    for place, cause in enumerate(answer["causes"][: max(1, answer["equally_good"])]):
        join = "" if place == 0 else " = " if cause["same_as_first"] else " or "
        text += join + (f" {100 * cause['explained']:.0f} % {cause['misfit']:.2f} {cause['cause']}"
                        f"{' + ' + cause['also'] if cause['also'] else ''}"
                        f"{''.join(' ~ ' + n for n in cause.get('also_called', []))}: {cause['how']}" if place == 0 else cause["cause"])
    return text


def entry_of(row, answer, kind):
    best = answer["causes"][0] if answer["causes"] else None
    return {"set": row["set"], "fault": row["fault"], "class": kind, "accepted": row["accepted"], "truth": row["truth"],
            "answer": said(answer),
            # Of the first cause: what it explains on this line and on the second one, and whether it is right.
            "here": round(best["explained"], 4) if best else "",
            "there": round(answer["explained_there"], 4) if answer.get("second_line") else "",
            "first_is_right": int(bool(best) and holds(row, best)), "seconds": round(answer["seconds"], 2)}


class Saved:
    """Answers as CSV, each written as it comes: what a run that is ended has asked is kept."""

    def __init__(self, path):
        self.file = open(path, "w", newline="") if path else None
        self.writer = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.file:
            self.file.close()

    def add(self, entry):
        if not self.file:
            return
        if not self.writer:
            self.writer = csv.DictWriter(self.file, entry.keys())
            self.writer.writeheader()
        self.writer.writerow(entry)
        self.file.flush()


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("table", type=pathlib.Path)
    ask.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    ask.add_argument("--program", type=pathlib.Path, help="default: assay of the build")
    ask.add_argument("--jobs", type=int, default=2)
    ask.add_argument("--set", action="append", help="only this set; repeatable")
    ask.add_argument("--only", action="append", help="only faults of this name; repeatable")
    ask.add_argument("--every", type=int, default=1, help="every n-th fault")
    ask.add_argument("--seconds", type=float, default=float("inf"), help="begin no fault after so many seconds")
    ask.add_argument("--without", action="store_true", help="with the right causes taken away: then all should be none")
    ask.add_argument("--save", type=pathlib.Path, help="answers as CSV, in the order in which they came")
    ask.add_argument("--against", type=pathlib.Path, help="saved answers; prints what changed")
    ask.add_argument("--libraries", type=pathlib.Path, help="folder that keeps the libraries")
    given = ask.parse_args()
    program = given.program or given.build / "assay"
    with open(given.table, newline="") as file:
        rows = [r for r in csv.DictReader(file) if not given.set or r["set"] in given.set]
    rows = [r for r in rows if not given.only or r["fault"] in given.only][:: given.every]
    before = {}
    if given.against:
        with open(given.against, newline="") as file:
            before = {(r["set"], r["fault"]): r for r in csv.DictReader(file)}
    with tempfile.TemporaryDirectory() as fresh:
        folder = given.libraries or pathlib.Path(fresh)
        folder.mkdir(parents=True, exist_ok=True)
        libraries = {}
        counts = collections.defaultdict(collections.Counter)
        seconds = collections.Counter()
        for name in sorted({r["library"] for r in rows}):
            kept = folder / f"lib{name}.so"
            libraries[name] = kept if kept.exists() else library(name, given.table.parent, given.build, folder)
        until = time.monotonic() + given.seconds
        with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool, Saved(given.save) as saved:
            asked = {pool.submit(explain, program, r, libraries[r["library"]], given.without, until): r for r in rows}
            for done in concurrent.futures.as_completed(asked):
                row, answer = asked[done], done.result()
                if answer is None:
                    continue
                kind = grade(row, answer)
                if given.without and kind not in ("not wrong", "no answer"):
                    kind = "sure" if answer["sure"] else "none"
                counts[row["set"]][kind] += 1
                seconds[row["set"]] += answer["seconds"]
                saved.add(entry := entry_of(row, answer, kind))
                old = before.get((row["set"], row["fault"]))
                changed = old and old["class"] != kind
                good = ("none", "not wrong") if given.without else ("right", "not wrong")
                if changed or (not before and kind not in good):
                    print(row["set"], row["fault"], f"{old['class']} -> {kind}" if changed else kind, "|", row["truth"], "|",
                          row["line"], "|", row["accepted"], "|", entry["answer"], flush=True)
    for name in sorted(counts):
        print(f"{name:>5} {sum(counts[name].values()):4} faults, {seconds[name]:5.0f} s:",
              ", ".join(f"{k} {n}" for k, n in counts[name].most_common()))
    total = sum(counts.values(), collections.Counter())
    print(f"  all {sum(total.values()):4} faults, {sum(seconds.values()):5.0f} s:",
          ", ".join(f"{k} {n}" for k, n in total.most_common()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
