#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ours beside other projects' kernels, as a table in markdown.

Usage: peers_table.py FOLDER

FOLDER is what `scripts/record cuda FOLDER --steps peers` wrote. Decode: us with the L2 read over before each launch / overwritten /
a captured launch replayed; prefill: TFLOP/s. Ratio: the best peer's time over ours, so above 1 we are ahead. FlashAttention-3 with
a cache of e4m3 takes Q in e4m3 as well, so its number comes from a line of its own (of the same bytes). What is not there was not
reached, or the peer does not take it; a last line names peers that have no row at all; (!): the row's outcome was another than passed.
"""
import csv
import pathlib
import re
import sys

MODES = (("cold", "eager"), ("dirty", "eager"), ("hot", "graph"))
PEERS = {"FlashAttention-3": ("paged_fa3", "prefill_fa3"), "XQA": ("paged_xqa",), "FlashMLA": ("paged_flash_mla",)}
Q_CODES, K_CODES = "q=fp8_e4m3:request_head kv=fp8_e4m3:request_head ", "kv=fp8_e4m3:host "


def rows_of(folder: pathlib.Path) -> list[dict]:
    file = folder / "rows.csv"
    if not file.exists():
        return []
    with open(file, newline="") as text:
        return [row for row in csv.DictReader(text) if row["time_us"]]


def column_of(kernel: str) -> str:
    for name, starts in PEERS.items():
        if kernel.startswith(starts):
            return name
    return "ours"


def number(value: float) -> str:
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def cell(rows: list[dict], column: str, key: str) -> str:
    texts = []
    for cache, launch in MODES if key == "time_us" else ((rows[0]["cache"], "eager"),):
        found = [r for r in rows if r["column"] == column and (r["cache"], r["launch"]) == (cache, launch)]
        texts.append(number(float(found[0][key])) + (" (!)" if found[0]["outcome"] != "passed" else "") if found else "")
    return " / ".join(texts) if any(texts) else ""


def ratios(rows: list[dict]) -> str:
    texts = []
    for mode in MODES:
        own = [r for r in rows if (r["cache"], r["launch"]) == mode]
        ours = [float(r["time_us"]) for r in own if r["column"] == "ours"]
        theirs = [float(r["time_us"]) for r in own if r["column"] != "ours"]
        if ours and theirs:
            texts.append(f"{min(theirs) / min(ours):.2f}")
    return " / ".join(texts)


def block(rows: list[dict], key: str, head: str) -> list[str]:
    columns = ["ours", *PEERS] if key == "time_us" else ["ours", "FlashAttention-3"]
    lines = [f"| {head} | " + " | ".join(columns) + " | ratio | of the limit |", "| :-- |" + " --: |" * (len(columns) + 2)]
    scenarios: dict[str, list[dict]] = {}
    for row in rows:
        row["column"] = column_of(row["kernel"])
        shown = row["scenario"].replace(Q_CODES, K_CODES) if key == "time_us" else row["scenario"]
        scenarios.setdefault(shown, []).append(row)
    for scenario, own in scenarios.items():
        limit = next((f"{float(r['limit_percent']):.0f} %" for r in own if r["column"] == "ours" and r["limit_percent"]), "")
        cells = [re.sub(r" seed=\d+", "", scenario), *(cell(own, c, key) for c in columns), ratios(own), limit]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def torch_block(folder: pathlib.Path) -> list[str]:
    lines = ["| TFLOP/s, one process | mask | batch x tokens | ours | torch cuDNN | torch flash | ratio |",
             "| :-- | :-- | --: | --: | --: | --: | --: |"]
    for file in sorted(folder.glob("torch_*.txt")):
        text = file.read_text()
        heads = re.search(r"heads (\S+ of [\d/]+)", text)
        for found in re.finditer(r"^bf16 +(causal|full) +(\d+) +(\d+) +\S+ +(\S+) +(\S+) +(\S+) +(\S+) ", text, re.M):
            mask, batch, tokens, *speeds, ratio = found.groups()
            numbers = [f"{float(x) / 1e3:.0f}" if float(x) > 0 else "" for x in speeds]
            lines.append(f"| {heads.group(1) if heads else ''} | {mask} | {batch} x {tokens} | " + " | ".join(numbers) + f" | {ratio} |")
    return lines if len(lines) > 2 else []


def table(folder: pathlib.Path) -> str:
    decode = [row for part in sorted(folder.glob("peers_decode*")) for row in rows_of(part)]
    blocks = [block(decode, "time_us", "us: L2 clean / dirty / in a graph")] if decode else []
    prefill = [row for name in ("peers_prefill*", "peers_paged_prefill") for part in sorted(folder.glob(name)) for row in rows_of(part)]
    if prefill:
        blocks.append(block(prefill, "tflops", "TFLOP/s"))
    if torch := torch_block(folder):
        blocks.append(torch)
    seen = {column_of(row["kernel"]) for row in decode + prefill}
    missing = [name for name in PEERS if name not in seen] + ([] if torch else ["torch"])
    if blocks and missing:
        blocks.append([f"Not in this run: {', '.join(missing)}."])
    return "\n\n".join("\n".join(lines) for lines in blocks)


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print(__doc__, file=sys.stdout if arguments[:1] in (["-h"], ["--help"]) else sys.stderr)
        return 0 if arguments[:1] in (["-h"], ["--help"]) else 2
    text = table(pathlib.Path(arguments[0]))
    if not text:
        print(f"peers_table: {arguments[0]} holds no rows of peers (peers_decode, peers_prefill, torch_*.txt)", file=sys.stderr)
        return 2
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
