#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether what the PROOFS.md of harness, reference and scenarios name exists: GoogleTest cases, python tests, kernels of the hostile table, files; and of
BOUNDS.md whether each lemma, each term of the tiers' tables and each section of formulas names the functions that compute it, and these exist where it says.

Usage: check_proofs.py [ROOT]     exit 0 all there, 1 something is not (one line each)
"""
import pathlib
import re
import sys

PROOFS = ("harness/PROOFS.md", "reference/PROOFS.md", "scenarios/PROOFS.md")
CASE = re.compile(r"^TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\s*\)", re.MULTILINE)
ROW = re.compile(r'^ +\{"(\w+)", "', re.MULTILINE)
NAMED_CASE, NAMED_TEST = re.compile(r"`([A-Z]\w+\.[A-Z]\w+)`"), re.compile(r"`(test_\w+)`")
NAMED_KERNEL, LINK = re.compile(r"\[(\w+)\](?!\()"), re.compile(r"\]\(([^)]+)\)")


BOUNDS = "reference/bounds/BOUNDS.md"
CITED = re.compile(r"`((?:\w+::)?~?[A-Za-z_]\w*(?:\(\))?|[\w/]+\.(?:cpp|hpp))`")


def defines(text: str, name: str) -> bool:
    """A function, type or member of this name, not only a word of a comment."""
    code = re.sub(r"//[^\n]*", "", text)
    return re.search(rf"\b{name}\s*(?:\(|=|,|;|<|\{{)|\b(?:struct|class)\s+{name}\b", code) is not None


def rows_of(lines: list[str], head: str) -> list[tuple[int, list[str]]]:
    """Lines of the first table whose head begins so: number and cells."""
    start = next((n for n, line in enumerate(lines) if line.startswith(head)), None)
    rows = []
    for number in range(start + 2, len(lines)) if start is not None else []:
        if not lines[number].startswith("|"):
            break
        rows.append((number + 1, [cell.strip() for cell in re.split(r"(?<!\\)\|", lines[number])[1:-1]]))
    return rows


def sources(root: pathlib.Path) -> dict[str, str]:
    """Code of reference and harness without its tests, by path."""
    return {str(p.relative_to(root)): p.read_text(encoding="utf-8") for folder in ("reference", "harness") for ending in ("*.cpp", "*.hpp")
            for p in sorted((root / folder).rglob(ending)) if not p.name.endswith("_test.cpp")}


def missing_in_row(files: dict[str, str], term: str, by: str) -> list[str]:
    """What a row of the table of terms cites that is not there, or not in the file it is said to be in."""
    found, cited, any_function = [], [], False
    # What stands between a file and the semicolon before it is in that file.
    for name in [name for part in by.split(";") for name in [*CITED.findall(part), ";"]]:
        if name == ";":
            cited = []
        elif "." in name:
            holders = [file for file in files if file == name or file.endswith(f"/{name}")]
            if not holders:
                found.append(f"no file {name}")
            found += [f"{name} has no {missed}" for missed in cited if holders and not any(defines(files[h], missed) for h in holders)]
            cited = []
        else:
            of, _, last = name.removesuffix("()").rpartition("::")
            any_function = True
            cited.append(last)
            # A member of a class stands in a file that has the class; a namespace's function anywhere.
            if not any(defines(code, last) and (not of or re.search(rf"\b{of}\b", code)) for code in files.values()):
                found.append(f"no function or type {name}")
    return found if any_function else [*found, f"\"{term}\" names nothing that computes it"]


def unnamed_lemmas(lines: list[str], named: str) -> list[str]:
    ranges = {f"L{n}" for first, last in re.findall(r"\bL(\d+) to L(\d+)\b", named) for n in range(int(first), int(last) + 1)}
    return [f"{BOUNDS}:{number}: no row says what computes {lemma}" for number, line in enumerate(lines, 1)
            for lemma in re.findall(r"^\*\*(L\d+) \(", line) if lemma not in ranges and not re.search(rf"\b{lemma}\b", named)]


def unnamed_terms(lines: list[str], named: str) -> list[str]:
    """Of tier P's table."""
    return [f"{BOUNDS}:{number}: no row says what computes \"{term} (P)\"" for number, cells in rows_of(lines, "| | systematic")
            for term in re.split(r", ", cells[0]) if f"{term} (P)" not in named]


def unnamed_sections(lines: list[str], named: str) -> list[str]:
    found = []
    for number, line in enumerate(lines, 1):
        for section in re.findall(r"^## (\d+) ", line):
            following = next((n for n in range(number, len(lines)) if lines[n].startswith("## ")), len(lines))
            # Those of sections 3 and 5 are the table's rows; 6, 7 and 10 have theirs in sentences.
            formulas = section in ("6", "7", "10") or any(row.startswith("    ") for row in lines[number:following])
            if formulas and section not in ("2", "3", "5") and f"section {section}" not in named:
                found.append(f"{BOUNDS}:{number}: section {section} has formulas, and no row says what computes them")
    return found


def check_bounds(root: pathlib.Path) -> list[str]:
    lines = (root / BOUNDS).read_text(encoding="utf-8").splitlines()
    rows = rows_of(lines, "| term | computed by |")
    if not rows:
        return [f"{BOUNDS}: no table of what computes each term"]
    files = sources(root)
    named = "".join(f" {term};" for _, (term, _) in rows)
    return [f"{BOUNDS}:{number}: {missing}" for number, (term, by) in rows for missing in missing_in_row(files, term, by)] \
        + unnamed_lemmas(lines, named) + unnamed_terms(lines, named) + unnamed_sections(lines, named)


def check(root: pathlib.Path) -> list[str]:
    def texts(*globs):
        return "\n".join(p.read_text(encoding="utf-8") for glob in globs for folder in ("harness", "kernels", "reference", "scripts")
                         for p in sorted((root / folder).rglob(glob)))

    cases = {f"{suite}.{name}" for suite, name in CASE.findall(texts("*_test.cpp"))}
    tests = set(re.findall(r"^def (test_\w+)", texts("test_*.py"), re.MULTILINE))
    kernels = set(ROW.findall((root / "harness/run/testing/hostile_table.hpp").read_text(encoding="utf-8")))
    found = []
    for proofs in PROOFS:
        for number, line in enumerate((root / proofs).read_text(encoding="utf-8").splitlines(), 1):
            for pattern, known, what in ((NAMED_CASE, cases, "test"), (NAMED_TEST, tests, "python test"), (NAMED_KERNEL, kernels, "hostile kernel")):
                if line.startswith("|"):
                    found += [f"{proofs}:{number}: no {what} {name}" for name in pattern.findall(line) if name not in known]
            found += [f"{proofs}:{number}: no file {name}" for name in LINK.findall(line) if not (root / proofs).parent.joinpath(name).exists()]
            if line.startswith("| ") and not line.startswith("| :--") and "stands by" not in line:
                proof = line.split("|")[2]
                if not (re.search(r"`\w|\]|open", proof)):
                    found.append(f"{proofs}:{number}: nothing shows this, and it does not say that it is open")
    return found


def main() -> int:
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2]
    found = check(root) + check_bounds(root)
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
