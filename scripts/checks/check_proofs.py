#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether what the PROOFS.md of harness, reference and scenarios name exists: GoogleTest cases, python tests, kernels of the hostile table, files.

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
    found = check(root)
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
