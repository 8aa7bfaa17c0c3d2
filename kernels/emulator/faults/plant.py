#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants faults in copies of GPU kernels: edits/FOLDER/NAME.edit says what to change in SOURCE/FOLDER/NAME.

Usage: plant.py SOURCE OUT [--edits EDITS] [--folder FOLDER] [--races]

Writes OUT/kernels/FOLDER/NAME for every edits file, with all its faults in it, each behind a condition at run time, and LIST below OUT with their
names, kernels and descriptions; of one folder alone, or of the races alone, if that is wanted. Lines keep their numbers. An edit that does not fit its
file exactly once is an error, and nothing is written then. The form of the edits: README.md. Exit 0, 1 with a message per mistake, 2 wrong use.
"""
import argparse
import dataclasses
import difflib
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
LIST = "kernels/emulator/faults/fault_list.hpp"
# Words, numbers, strings and signs; blanks and comments lie between them. An edit therefore fits however its lines are broken.
TOKEN = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|[A-Za-z_]\w*|\d[\w.]*|\S", re.DOTALL)


class Mistakes(Exception):
    """Messages for the author of the edits, one each."""


@dataclasses.dataclass
class Change:
    old: str  # empty: an insertion behind the context before it
    new: str


@dataclasses.dataclass
class Hunk:
    line: int  # in the edits file
    parts: list  # str (context) or Change, in order


@dataclasses.dataclass
class Fault:
    name: str
    kernel: str
    what: str
    line: int
    race: bool = False
    hunks: list = dataclasses.field(default_factory=list)


def tokens_of(text: str) -> list[tuple[str, int, int]]:
    return [(m[0], m.start(), m.end()) for m in TOKEN.finditer(text) if not m[0].startswith(("//", "/*"))]


def words(text: str) -> list[str]:
    return [t for t, _, _ in tokens_of(text)]


def hunk_of(lines: list[tuple[int, str]]) -> Hunk:
    parts = []
    for _, text in lines:
        sign, rest = text[0], text[1:].strip()
        if sign == " ":
            if parts and isinstance(parts[-1], str):
                parts[-1] += " " + rest
            else:
                parts.append(rest)
            continue
        if not parts or isinstance(parts[-1], str):
            parts.append(Change("", ""))
        change = parts[-1]
        if sign == "-":
            change.old = f"{change.old} {rest}".strip()
        else:
            change.new = f"{change.new} {rest}".strip()
    return Hunk(lines[0][0], parts)


def read_edits(path: pathlib.Path) -> list[Fault]:
    """Faults in a file of edits; Mistakes with the line of each."""
    faults, mistakes, gathered = [], [], []

    def close():
        if gathered:
            hunk = hunk_of(gathered)
            if not any(isinstance(p, Change) for p in hunk.parts):
                mistakes.append(f"{path}:{hunk.line}: a hunk without a line that begins with - or +")
            elif not any(isinstance(p, str) or p.old for p in hunk.parts):
                mistakes.append(f"{path}:{hunk.line}: an insertion needs a line of context")
            faults[-1].hunks.append(hunk)
        gathered.clear()

    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not text.strip() or text.startswith("#"):
            continue
        if text.startswith(("fault ", "race ")):
            close()
            match = re.fullmatch(r"(?:fault|race) ([a-z]\w*) in (\w+): (.+)", text)
            if not match:
                mistakes.append(f"{path}:{number}: expected 'fault NAME in KERNEL: what is wrong' (or race NAME ...), not '{text}'")
            faults.append(Fault(*(match.groups() if match else ("", "", "")), number, text.startswith("race ")))
        elif text == "@@":
            close()
        elif text[0] in " -+" and faults:
            gathered.append((number, text))
        else:
            mistakes.append(f"{path}:{number}: expected a line that begins with 'fault', 'race', '@@', a blank, - or +, not '{text}'")
    close()
    mistakes += [f"{path}:{f.line}: fault {f.name} changes nothing" for f in faults if f.name and not f.hunks]
    if mistakes:
        raise Mistakes(mistakes)
    return faults


def nearest(snippet: str, source: str) -> str:
    """The three lines of a file most like a snippet, for a message."""
    wanted = " ".join(words(snippet))

    def likeness(text: str) -> float:
        return difflib.SequenceMatcher(None, " ".join(words(text)), wanted, autojunk=False).ratio()

    ranked = sorted(enumerate(source.splitlines(), 1), key=lambda line: -likeness(line[1]))[:3]
    return "".join(f"\n    line {number}: {text.strip()}" for number, text in sorted(ranked))


def places(hunk: Hunk, tokens: list[tuple[str, int, int]]) -> list[int]:
    """Where the text of a hunk before its changes begins in a file, as indices of tokens."""
    wanted = words(" ".join(p if isinstance(p, str) else p.old for p in hunk.parts))
    text = [t for t, _, _ in tokens]
    return [i for i in range(len(text) - len(wanted) + 1) if text[i:i + len(wanted)] == wanted]


def changed_ranges(hunk: Hunk, tokens: list[tuple[str, int, int]], at: int):
    """(begin, end, change) in characters of the file, for a hunk that begins at token `at`."""
    for part in hunk.parts:
        count = len(words(part if isinstance(part, str) else part.old))
        if isinstance(part, Change):
            if count:
                yield tokens[at][1], tokens[at + count - 1][2], part
            else:
                point = tokens[at - 1][2] if at else tokens[at][1]
                yield point, point, part
        at += count


def conditional(name: str, old: str, change: Change) -> str:
    """`old` (text of the file, perhaps with other faults in it) or what the fault makes of it."""
    condition = f"::assay_gpu::fault(::assay_gpu::Fault::{name})"
    if (change.old or change.new).endswith((";", "}")):
        return f"{{ if ({condition}) {{ {change.new} }} else {{ {old} }} }}" if change.old else f"{{ if ({condition}) {{ {change.new} }} }}"
    return f"({condition} ? ({change.new}) : ({old}))"


def plant(path: pathlib.Path, source: str, faults: list[Fault], edits: pathlib.Path) -> str:
    """The text of a source file with all faults in it; Mistakes for those that do not fit."""
    tokens, mistakes, ranges = tokens_of(source), [], []
    for fault in faults:
        for hunk in fault.hunks:
            here = f"{edits}:{hunk.line}: fault {fault.name}"
            snippet = " ".join(p if isinstance(p, str) else p.old for p in hunk.parts).strip()
            found = places(hunk, tokens)
            if not found:
                mistakes.append(f"{here} no longer fits {path}; expected\n    {snippet}\n  nearest lines:{nearest(snippet, source)}")
            elif len(found) > 1:
                lines = ", ".join(str(source.count("\n", 0, tokens[i][1]) + 1) for i in found)
                mistakes.append(f"{here} fits {path} {len(found)} times, at lines {lines}; give it more context than\n    {snippet}")
            else:
                ranges += [(begin, end, fault, change, here) for begin, end, change in changed_ranges(hunk, tokens, found[0])]
    ranges.sort(key=lambda r: (r[0], r[1]))
    merged = []  # (begin, end, [(fault, change)])
    for begin, end, fault, change, here in ranges:
        if merged and merged[-1][:2] == (begin, end) and begin != end:
            merged[-1][2].append((fault, change))
        elif merged and begin < merged[-1][1]:
            mistakes.append(f"{here} overlaps fault {merged[-1][2][-1][0].name} in {path} without being at the same place")
        else:
            merged.append((begin, end, [(fault, change)]))
    if mistakes:
        raise Mistakes(mistakes)
    out, at = [], 0
    for begin, end, changes in merged:
        text = source[begin:end]
        for fault, change in changes:
            text = conditional(fault.name, text, change)
        out += [source[at:begin], text]
        at = end
    return "".join(out) + source[at:]


def fault_list(faults: list[Fault]) -> str:
    names = "".join(f"\n  {f.name}," for f in faults)
    rows = "".join(f'\n    {{Fault::{f.name}, "{f.name}", "{f.kernel}", "{f.what}"}},' for f in faults)
    return f"""// Made by kernels/emulator/faults/plant.py from the files in edits/.
#pragma once

#include <cstdint>

namespace assay_gpu {{

enum class Fault : int32_t {{
  none,{names}
}};

struct PlantedFault {{
  Fault fault;
  const char *name, *kernel, *what;
}};
constexpr PlantedFault kPlanted[] = {{{rows}
}};

}}  // namespace assay_gpu
"""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=pathlib.Path, help="the folder that holds the folders of kernels")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--edits", type=pathlib.Path, default=HERE / "edits")
    parser.add_argument("--folder", default="*", help="edits of this folder alone")
    parser.add_argument("--races", action="store_true", help="those called race alone")
    options = parser.parse_args(arguments)
    mistakes, written, everything, known = [], {}, [], {}
    for edits in sorted(options.edits.glob(f"{options.folder}/*.edit")):
        path = options.source.resolve() / edits.parent.name / edits.stem
        try:
            faults = read_edits(edits)
            if not path.is_file():
                raise Mistakes([f"{edits}: there is no {path}; an edits file is called like the file it changes"])
            for fault in faults:
                if fault.name in known:
                    raise Mistakes([f"{edits}:{fault.line}: there is a fault {fault.name} already, at {known[fault.name]}"])
                known[fault.name] = f"{edits}:{fault.line}"
            faults = [f for f in faults if f.race or not options.races]
            if not faults:
                continue
            # Findings name the lines of the file the fault was planted in.
            text = plant(path, path.read_text(encoding="utf-8"), faults, edits)
            written[edits.parent.name, edits.stem] = f'#include "kernels/emulator/faults/planted.hpp"\n#line 1 "{path}"\n{text}'
            everything += faults
        except Mistakes as why:
            mistakes += why.args[0]
    if not everything and not mistakes:
        mistakes.append(f"there is no fault in {options.edits}/{options.folder}/*.edit")
    for text in mistakes:
        print(text, file=sys.stderr)
    if mistakes:
        return 1
    for (folder, name), text in written.items():
        copy = options.out / "kernels" / folder / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(text, encoding="utf-8")
    (options.out / LIST).parent.mkdir(parents=True, exist_ok=True)
    (options.out / LIST).write_text(fault_list(everything), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
