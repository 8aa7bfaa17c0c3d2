#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Closing lines of a test run: steps, failures, skips with their reasons, what the tree's draw leaves out (draw.py), and one line of counts.

Usage: summarize_tests.py [--left-out LINES] JUNIT.xml... -- "STEP passed|failed|skipped"...     exit 0 only when nothing failed
"""
import collections
import pathlib
import re
import sys
import xml.etree.ElementTree as ET


def skip_reason(case: ET.Element) -> str:
    """The text a test printed when it skipped; CTest itself only knows that it did."""
    output = case.findtext("system-out") or ""
    match = re.search(r"^.*: Skipped\n(.+?)\n", output, re.MULTILINE) or re.search(r"SKIPPED.*?: (.+)", output)
    if match:
        return match.group(1).strip()
    lines = [line for line in output.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "no reason printed"


def main(argv: list[str]) -> int:
    left_out = []
    if argv[:1] == ["--left-out"]:
        lines = pathlib.Path(argv[1])
        left_out = lines.read_text().splitlines() if lines.exists() else []  # the build failed
        argv = argv[2:]
    split = argv.index("--") if "--" in argv else len(argv)
    passed, failed, skipped = 0, [], collections.Counter()
    for path in argv[:split]:
        preset = pathlib.Path(path).stem
        for case in ET.parse(path).getroot().iter("testcase"):
            status = case.get("status")
            if status == "run":
                passed += 1
            elif status in ("notrun", "disabled"):
                skipped[f"{preset}: {skip_reason(case)}"] += 1
            else:
                failed.append(f"{preset}: {case.get('name')}")
    steps_failed = 0
    for step in argv[split + 1:]:
        name, status = step.rsplit(" ", 1)
        print(f"{status:7} {name}")
        steps_failed += status not in ("passed", "skipped")
    for name in failed:
        print(f"FAILED  {name}")
    for reason, count in sorted(skipped.items()):
        print(f"skipped {count}: {reason}")
    for line in left_out:
        print(line)
    if steps_failed and not failed:
        failed = ["step"] * steps_failed
    tests, programs = (sum(int(n) for line in left_out for n in re.findall(rf"(\d+) {what}", line)) for what in ("tests", "programs"))
    rest = f", {tests} left out with {programs} programs of tests" if left_out else ""
    print(f"tests: {passed} passed, {len(failed)} failed, {sum(skipped.values())} skipped{rest}")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
