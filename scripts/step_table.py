#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What steps cost: each beside its stages, their sum, and one call of attention over the same batch.

Usage: step_table.py FOLDER [--out FILE]

FOLDER holds a run of steps with --stages. A block per case and mode (cold, hot, graph), times in us; a line per pipeline, then
its stages in their order, and metadata of the host (plan). Rates of a stage count its own rows, operations and bytes; the
percentage is of the limit measured at the start of the run. `x sum`: the step over the sum of its stages, each timed by itself,
launch and all. `x call`: over stage `attend` of step_unified, one call over the same batch.
"""
import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from reporting import rows as reading  # noqa: E402

import pandas as pd  # noqa: E402

CALL = ("step_unified", "attend")
HEADER = ["kernel", "stage", "us", "tokens/s", "TFLOP/s", "GB/s", "of limit %", "plan us", "x sum", "x call"]


def number(value: float, digits: int = 4) -> str:
    if pd.isna(value):
        return ""
    text = f"{value:.{digits}g}"
    return text if "e" not in text else f"{value:,.0f}"


def split(name: str) -> tuple[str, str]:
    """Kernel and stage; a name with stages replaced may hold colons within its parentheses."""
    at = name.find(":", name.rfind(")") + 1)
    return (name, "") if at < 0 else (name[:at], name[at + 1:])


def timed(rows: pd.DataFrame) -> pd.DataFrame:
    rows = rows[rows.time_us.notna() & (rows.op == "step")].copy()
    rows["mode"] = rows.cache.where(rows.launch != "graph", "graph")
    rows["whole"] = [split(name)[0] for name in rows.kernel]
    rows["stage"] = [split(name)[1] for name in rows.kernel]
    return rows


def block(rows: pd.DataFrame) -> list[list[str]]:
    """Lines of one case and mode."""
    call = rows[rows.whole.str.startswith(CALL[0]) & (rows.stage == CALL[1])].time_us
    lines = []
    for kernel, own in rows.groupby("whole", sort=False):
        stages, step = own[own.stage != ""], own[own.stage == ""]
        for row in pd.concat([step, stages]).itertuples():
            rates = [number(x) for x in (row.time_us, row.tokens_per_s, row.tflops, row.gbytes_per_s, row.limit_percent)]
            ratios = ["", "", ""]
            if row.stage == "":
                ratios = [number(row.plan_us), number(row.time_us / stages.time_us.sum(), 3) if len(stages) else "",
                          number(row.time_us / call.iloc[0], 3) if len(call) else ""]
            lines.append([kernel if row.stage == "" else "", row.stage, *rates, *ratios])
    return lines


def table(rows: pd.DataFrame) -> str:
    text = []
    for (scenario, mode), own in timed(rows).groupby(["scenario", "mode"], sort=False):
        lines = [HEADER] + block(own)
        widths = [max(len(line[i]) for line in lines) for i in range(len(HEADER))]
        text.append(f"{scenario} [{mode}]")
        for line in lines:
            cells = [cell.ljust(w) if i < 2 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths))]
            text.append(("  " + "  ".join(cells)).rstrip())
        text.append("")
    return "\n".join(text)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--out", help="a file in place of the terminal")
    args = parser.parse_args(arguments)
    try:
        text = table(reading.load(pathlib.Path(args.folder)).rows)
    except reading.InputError as error:
        print(error, file=sys.stderr)
        return 2
    if not text:
        print(f"{args.folder}: holds no timed step; record one with assay bench performance_steps --stages --out DIR",
              file=sys.stderr)
        return 2
    if args.out:
        pathlib.Path(args.out).write_text(text, encoding="utf-8")
    else:
        print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
