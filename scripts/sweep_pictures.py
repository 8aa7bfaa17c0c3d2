#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the sweeps of scenarios/sweeps*.suite: what the numbers that a server chooses do to the time of a step.

Usage: sweep_pictures.py FOLDER... OUT [--accept RATE,...] [--cache cold|hot] [--workers COUNT]

A FOLDER holds a run of a sweep, or of a part of it; OUT, a folder, gets a picture for every sweep that the run has rows of:

  drafts.png   tokens/s of draft decode and verification by branches (top-k) and drafts, at given chances that a draft is accepted
  chunks.png   time of extends by the token budget of their chunks, a line per pipeline
  cascade.png  a shared prefix attended once or by every request: which is faster, and what the rule of the seed loses where it errs
  ranks.png    time of a step by the turns in which ranks share keys, a line per number of ranks
  mixes.png    time of the steps of a server's trace, with and without drafts, a line per pipeline

Drafts: S = drafts / top-k steps of top-k branches, then a verification of all. A level of the tree is accepted with p = 1 - (1 -
RATE)^(top-k), independently; a step of the server yields 1 + p + ... + p^S tokens a request. Draft steps that no row measured lie
on the straight line between their neighbours. Of kernels that ran a line the fastest counts; of cascades those of step_ixformer_fa,
which is the one that has them. Rows that are too noisy to say how fast are drawn all the same, and counted.
"""
import argparse
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from reporting import rows as reading  # noqa: E402
from reporting import style  # noqa: E402  (sets the look of all pictures)

import matplotlib.pyplot as plt  # noqa: E402
import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402

RATES = "0.3,0.6,0.8"
CASCADES = "step_ixformer_fa"  # the pipeline that attends a prefix once
TRACE = re.compile(r"batch=trace\(([^,]+),step=(\d+)(?:,[^)]*?)?(?:,draft=(\d+))?\)")
BATCH = re.compile(r"batch=(\d+)q(\d+)(?:s(\d+k?))?(?:p(\d+k?))?(?= |$)")


def tokens(text: str) -> int:
    return int(text[:-1]) * 1024 if text.endswith("k") else int(text)


def facts(line: str) -> dict | None:
    """What a line of a sweep says; None for others: sweeps have one group of requests."""
    batch = BATCH.search(line)
    if not line.startswith("step ") or batch is None:
        return None
    given = dict(re.findall(r"(\w+)=(\S+)", line))
    rows = int(batch[2])
    return {"tree": given.get("mask") == "tree", "drafted": int(given["drafted"]) if "drafted" in given else None,
            "depth": given.get("positions") == "depth", "budget": tokens(given.get("budget", "32k")),
            "prefix": tokens(given.get("prefix", "0")), "requests": int(batch[1]), "rows": rows,
            "ranks": int(given.get("ranks", "1")), "turns": tokens(given.get("interleave", "1")) if {"ranks", "interleave"} & given.keys() else None,
            "keys": tokens(batch[3]) if batch[3] else rows, "shared": tokens(batch[4]) if batch[4] else 0,
            "heads": tuple(int(x) for x in (given.get("h", "32/8") + "/" + given.get("h", "32/8")).split("/")[:2])}


def whole_steps(rows: pd.DataFrame, cache: str) -> pd.DataFrame:
    """Rows of whole steps that were timed eagerly."""
    rows = rows[rows.time_us.notna() & (rows.op == "step") & (rows.launch != "graph") & (rows.cache == cache)]
    return rows[~rows.kernel.str.contains(r":[a-z_0-9]+$")]


def of_traces(rows: pd.DataFrame) -> pd.DataFrame:
    """Steps of traces: which trace, which of its steps, how many drafts a request has."""
    kept = [(row, found) for row in rows.itertuples() if (found := TRACE.search(row.scenario)) is not None]
    return pd.DataFrame([{"trace": found[1], "step": int(found[2]), "drafts": int(found[3] or 0), "kernel": row.kernel, "us": row.time_us,
                          "noisy": row.outcome == "noisy"} for row, found in kept])


def timed(rows: pd.DataFrame, cache: str) -> pd.DataFrame:
    """Whole steps of one group of requests, with the facts of their lines as columns."""
    rows = whole_steps(rows, cache)
    kept = [(row, found) for row in rows.itertuples() if (found := facts(row.scenario)) is not None]
    return pd.DataFrame([{"kernel": row.kernel, "us": row.time_us, "noisy": row.outcome == "noisy", **found} for row, found in kept])


def expected_tokens(rate: float, branches: int, steps: int) -> float:
    """Tokens that a request gains by a verification of so many levels, the one that it yields in any case included."""
    level = 1 - (1 - rate) ** branches
    return sum(level**i for i in range(steps + 1))


def draft_times(steps: pd.Series, count: int) -> float:
    """Time of draft steps 0 to count - 1, by a series over the steps measured."""
    return float(np.interp(np.arange(count), steps.index, steps).sum())


def draft_table(rows: pd.DataFrame, rates: list[float]) -> pd.DataFrame:
    """Tokens/s for every top-k, number of drafts and rate that rows were measured for."""
    trees = rows[rows.tree]
    steps = trees[trees.depth].groupby(["rows", "drafted"], dropna=False).us.min().reset_index()
    steps["drafted"] = steps.drafted.fillna(0)
    verify = trees[~trees.depth].groupby(["rows", "requests"]).us.min().reset_index()
    out = []
    for branches, own in steps.groupby("rows"):
        times = own.set_index("drafted").us.sort_index()
        for row in verify.itertuples():
            if row.rows % branches != 0:
                continue
            count = row.rows // branches
            us = row.us + draft_times(times, count)
            out += [{"branches": branches, "drafts": row.rows, "rate": rate,
                     "tokens_per_s": row.requests * expected_tokens(rate, branches, count) / us * 1e6} for rate in rates]
    return pd.DataFrame(out)


def rule_says(prefix: int, requests: int, heads: tuple[int, int], workers: int) -> bool:
    """The rule of op cascade_metadata for requests of one row each, without bias and windows."""
    if prefix < 256 or requests < 8:
        return False
    group, tiles = heads[0] // heads[1], -(-prefix // 128)
    if group == 1:
        return True
    blocks, split = heads[0] * -(-requests // 128), requests * heads[1] * -(-group // 128) * tiles
    return -(-blocks // workers) * tiles < -(-split // workers)


def cascade_table(rows: pd.DataFrame, workers: int) -> pd.DataFrame:
    """Both times of every prefix and number of requests, what the rule says, and what it loses."""
    out = []
    rows = rows[rows.kernel.str.startswith(CASCADES) & (rows.shared > 0)]
    for (shared, requests), own in rows.groupby(["shared", "requests"]):
        once, each = own[own.prefix > 0].us.min(), own[own.prefix == 0].us.min()
        if np.isnan(once) or np.isnan(each):
            continue
        says = rule_says(shared, requests, own.heads.iloc[0], workers)
        out.append({"prefix": shared, "requests": requests, "once_us": once, "each_us": each, "says": says,
                    "loss": (once if says else each) / min(once, each) - 1})
    return pd.DataFrame(out)


def draw_drafts(table: pd.DataFrame) -> plt.Figure:
    rates = sorted(table.rate.unique())
    figure, panels = plt.subplots(1, len(rates), figsize=(3.6 * len(rates) + 0.6, 3.4), sharey=True, squeeze=False,
                                  layout="constrained")
    for rate, axes in zip(rates, panels[0]):
        for i, (branches, own) in enumerate(table[table.rate == rate].groupby("branches")):
            own = own.sort_values("drafts")
            axes.plot(own.drafts, own.tokens_per_s, marker=style.MARKERS[i % len(style.MARKERS)], label=f"top-k {branches}")
        axes.set_xscale("log", base=2)
        axes.set_xticks(sorted(table.drafts.unique()), sorted(table.drafts.unique()))
        axes.minorticks_off()
        axes.set_xlabel("drafts verified")
        axes.set_title(f"a draft is accepted with {rate:g}", fontsize=9.5)
    panels[0][0].set_ylabel("tokens/s")
    panels[0][-1].legend()
    return figure


def draw_chunks(rows: pd.DataFrame) -> plt.Figure:
    figure, axes = plt.subplots(figsize=(5, 3.4), layout="constrained")
    for i, (kernel, own) in enumerate(rows.groupby("kernel")):
        best = own.groupby("budget").us.min()
        axes.plot(best.index, best, marker=style.MARKERS[i % len(style.MARKERS)], label=kernel)
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted(rows.budget.unique()), [f"{int(x)}" for x in sorted(rows.budget.unique())])
    axes.minorticks_off()
    axes.set_xlabel("token budget of a chunk")
    axes.set_ylabel("us")
    axes.legend()
    return figure


def draw_ranks(rows: pd.DataFrame) -> plt.Figure:
    figure, axes = plt.subplots(figsize=(5, 3.4), layout="constrained")
    lengths = rows.groupby(["requests", "keys", "ranks"])
    for i, ((requests, keys, ranks), own) in enumerate(lengths):
        best = own.groupby("turns").us.min()
        axes.plot(best.index, best, marker=style.MARKERS[i % len(style.MARKERS)], label=f"{ranks} ranks, {requests} x {keys}")
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted(rows.turns.unique()), [f"{int(x)}" for x in sorted(rows.turns.unique())])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.set_xlabel("keys that a rank holds before the next one's turn")
    axes.set_ylabel("us")
    axes.legend()
    return figure


def draw_mixes(rows: pd.DataFrame) -> plt.Figure:
    groups = list(rows.groupby(["trace", "drafts"]))
    figure, panels = plt.subplots(1, len(groups), figsize=(3.4 * len(groups) + 0.8, 3.4), sharey=True, squeeze=False, layout="constrained")
    kernels = {kernel: i for i, kernel in enumerate(sorted(rows.kernel.unique()))}
    for ((trace, drafts), own), axes in zip(groups, panels[0]):
        for kernel, i in kernels.items():
            of_kernel = own[own.kernel == kernel].sort_values("step")
            axes.plot(of_kernel.step, of_kernel.us, marker=style.MARKERS[i % len(style.MARKERS)], label=kernel.split("(")[0])
        axes.set_yscale("log")
        axes.set_xlabel("step of the server")
        axes.set_title(f"{trace}, {drafts} drafts", fontsize=8.5)
    panels[0][0].set_ylabel("us")
    panels[0][-1].legend(fontsize=7)
    return figure


def draw_cascade(table: pd.DataFrame) -> plt.Figure:
    grid = table.assign(gain=np.log2(table.each_us / table.once_us)).pivot(index="requests", columns="prefix", values="gain")
    figure, axes = plt.subplots(figsize=(1.1 * len(grid.columns) + 2.6, 0.6 * len(grid.index) + 1.6), layout="constrained")
    most = max(0.1, np.nanmax(np.abs(grid.to_numpy())))
    image = axes.imshow(grid, origin="lower", aspect="auto", cmap="RdBu", vmin=-most, vmax=most)
    for row in table.itertuples():
        at = grid.columns.get_loc(row.prefix), grid.index.get_loc(row.requests)
        text = f"{2.0 ** grid.loc[row.requests, row.prefix]:.2f}x" + (f"\nloses {100 * row.loss:.0f} %" if row.loss > 0 else "")
        strong = abs(grid.loc[row.requests, row.prefix]) > 0.6 * most
        axes.annotate(text, at, ha="center", va="center", fontsize=7, color="white" if strong else style.INK)
    axes.grid(False)
    axes.set_xticks(range(len(grid.columns)), grid.columns)
    axes.set_yticks(range(len(grid.index)), grid.index)
    axes.set_xlabel("tokens of the shared prefix")
    axes.set_ylabel("requests")
    figure.colorbar(image, ax=axes, label="log2 of each / once")
    return figure


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="+")
    parser.add_argument("out")
    parser.add_argument("--accept", default=RATES, help=f"chances that a draft is accepted ({RATES})")
    parser.add_argument("--cache", default="hot", choices=["cold", "hot"])
    parser.add_argument("--workers", type=int, default=132, help="blocks that run at once, for the rule of cascades")
    args = parser.parse_args(arguments)
    try:
        rates = [float(x) for x in args.accept.split(",")]
        if not all(0 <= rate < 1 for rate in rates):
            raise ValueError
    except ValueError:
        print(f"--accept {args.accept}: expected chances from 0 to below 1, joined by commas", file=sys.stderr)
        return 2
    try:
        loaded = [reading.load(pathlib.Path(folder)).rows for folder in args.folder]
    except reading.InputError as error:
        print(error, file=sys.stderr)
        return 2
    rows = pd.concat([timed(own, args.cache) for own in loaded])
    mixes = pd.concat([of_traces(whole_steps(own, args.cache)) for own in loaded])
    pictures = {} if mixes.empty else {"mixes": draw_mixes(mixes)}
    if not rows.empty:
        ranks = rows[rows.turns.notna()]
        if len(ranks.groupby(["ranks", "turns"])) > 1:
            pictures["ranks"] = draw_ranks(ranks)
        rows = rows[rows.turns.isna() & (rows.ranks == 1)]
        if not (drafts := draft_table(rows, rates)).empty:
            pictures["drafts"] = draw_drafts(drafts)
        if not (chunks := rows[~rows.tree & (rows.rows > 1) & (rows.shared == 0)]).empty:
            pictures["chunks"] = draw_chunks(chunks)
        if not (cascade := cascade_table(rows, args.workers)).empty:
            pictures["cascade"] = draw_cascade(cascade)
    if not pictures:
        print(f"{', '.join(args.folder)}: holds no sweep timed with a {args.cache} cache; record one with assay bench sweeps --out DIR",
              file=sys.stderr)
        return 2
    noisy = [bool(x) for own in (rows, mixes) if not own.empty for x in own.noisy]
    if any(noisy):
        print(f"{sum(noisy)} of {len(noisy)} times are noisy", file=sys.stderr)
    folder = pathlib.Path(args.out)
    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in pictures.items():
        figure.savefig(folder / f"{name}.png", dpi=130)
        print(folder / f"{name}.png")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
