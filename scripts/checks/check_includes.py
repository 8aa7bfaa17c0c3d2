#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the direction of #include: a stage includes only itself and earlier stages.

Usage: check_includes.py [ROOT]     exit 0 clean, 1 violations (one line each, file:line: why)
"""
import pathlib
import re
import sys

# Earlier first. A folder may include itself and what its entry lists.
ALLOWED = {
    "harness/base": [],
    "harness/abi": [],
    "harness/problem": ["harness/base", "harness/abi"],
    "harness/ops": ["harness/base", "harness/abi", "harness/problem"],
    "harness/buffers": ["harness/base", "harness/abi", "harness/problem", "harness/ops"],
    "reference": ["harness/base", "harness/abi", "harness/problem"],
    "harness/cover": ["harness/base"],
    "harness/trace": ["harness/base", "harness/abi", "harness/problem"],
    "harness/scenario": ["harness/base", "harness/abi", "harness/problem", "harness/ops", "harness/cover", "harness/trace"],
    "harness/input": ["harness/base", "harness/abi", "harness/problem", "harness/ops", "harness/buffers", "reference"],
    "harness/device": ["harness/base", "harness/abi", "harness/problem", "harness/ops", "harness/buffers", "harness/input"],
    "harness/check": ["harness/base", "harness/abi", "harness/problem", "harness/ops", "harness/buffers", "reference", "harness/input", "harness/device"],
    "harness/measure": ["harness/base", "harness/abi", "harness/problem", "harness/ops"],
    "harness/calibrate": ["harness/base", "harness/abi", "harness/problem", "harness/ops", "reference", "harness/device", "harness/measure"],
    "harness/report": ["harness/base"],
    "harness/run": ["harness/base", "harness/abi", "harness/problem", "harness/ops", "harness/buffers", "reference", "harness/scenario", "harness/trace", "harness/input",
                    "harness/device", "harness/check", "harness/measure", "harness/calibrate", "harness/report"],
    "harness/mutants": ["harness/base", "harness/abi", "harness/problem", "harness/ops", "harness/buffers", "reference", "harness/scenario", "harness/input", "harness/device",
                        "harness/check"],
    "harness/campaign": ["harness/base", "harness/abi", "harness/problem", "harness/ops", "harness/buffers", "reference", "harness/scenario", "harness/input", "harness/device",
                         "harness/check", "harness/report", "harness/run", "harness/mutants"],
    "harness/power": ["harness/base", "harness/abi", "harness/problem", "harness/ops", "reference", "harness/scenario", "harness/input", "harness/device", "harness/check",
                      "harness/mutants"],
    "harness/explain": ["harness/base", "harness/abi", "harness/problem", "harness/ops", "harness/buffers", "reference", "harness/scenario", "harness/input", "harness/device",
                        "harness/check", "harness/run"],
    "harness/cli": ["harness/base", "harness/abi", "harness/problem", "harness/ops", "harness/buffers", "reference", "harness/scenario", "harness/trace", "harness/input",
                    "harness/device", "harness/check", "harness/measure", "harness/calibrate", "harness/report", "harness/run", "harness/mutants",
                    "harness/campaign", "harness/power", "harness/explain"],
    # Kernels are judged by the harness, so they share nothing with the judge but the C header and index arithmetic.
    "kernels": ["harness/abi", "harness/problem"],
}
# Tests may build their cases with any stage: they are not part of the flow.
TEST = re.compile(r"_(test|bench|fuzz)\.cpp$|/testing/")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')


def stage_of(path: str) -> str | None:
    return next((s for s in sorted(ALLOWED, key=len, reverse=True) if path.startswith(s + "/")), None)


def check(root: pathlib.Path) -> list[str]:
    problems = []
    for folder in ("harness", "reference", "kernels"):
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in {".cpp", ".hpp", ".h", ".cu", ".cuh", ".inl"}:
                continue
            name = file.relative_to(root).as_posix()
            stage = stage_of(name)
            if stage is None:
                problems.append(f"{name}:1: not inside a known stage; add it to {pathlib.Path(__file__).name}")
                continue
            if TEST.search(name):
                continue
            for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
                match = INCLUDE.match(line)
                if not match:
                    continue
                target = match.group(1)
                if (file.parent / target).exists() and "/" not in target:
                    continue  # same folder
                other = stage_of(target)
                if other is None:
                    problems.append(f'{name}:{number}: "{target}" is not a path from the repository root')
                elif other != stage and other not in ALLOWED[stage]:
                    problems.append(f"{name}:{number}: {stage} must not include {other} ({target})")
    return problems


if __name__ == "__main__":
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2])
    found = check(root)
    print("\n".join(found) if found else "includes: every stage includes only earlier ones")
    sys.exit(1 if found else 0)
