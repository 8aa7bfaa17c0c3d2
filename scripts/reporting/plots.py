# SPDX-License-Identifier: Apache-2.0
"""The pictures of a run. Each function takes a Run and gives a Figure with the numbers it shows, or a
sentence that says why there is nothing to show (an empty chart would look like a result).

To add one: a function here, and a line in PICTURES.
"""
import dataclasses
import math
import pathlib
import re

import matplotlib.lines as lines
import matplotlib.patheffects as patheffects
import matplotlib.pyplot as plt
import matplotlib.ticker as ticker
import numpy as np
import pandas as pd

from . import style
from .rows import OUTCOMES, Run

HALO = [patheffects.withStroke(linewidth=3, foreground="white")]  # a label stays readable among points
RASTER_POINTS = 1500  # more than this and a vector picture is slow to show
KINDS = {"decode": "decode batches", "extend": "extend batches", "prefill": "prefill batches", "mixed": "mixed batches"}


@dataclasses.dataclass
class Picture:
    name: str
    title: str
    caption: str
    figure: plt.Figure | None = None  # None: message says why
    data: pd.DataFrame | None = None
    message: str = ""
    wide: bool = False
    svg: bytes = b""
    csv: str = ""


def kind_of_batch(row) -> str:
    present = [k for k, n in (("decode", row.decodes), ("extend", row.extends), ("prefill", row.prefills)) if n > 0]
    return present[0] if len(present) == 1 else "mixed"


def length_label(x: float, _=None) -> str:
    if x >= 1 << 20 and x % (1 << 20) == 0:
        return f"{int(x) >> 20}m"
    return f"{int(x) >> 10}k" if x >= 1024 and x % 1024 == 0 else f"{x:g}"


def short(name: str, most: int = 30) -> str:
    """A label: not too long, and not taken for a formula."""
    name = name if len(name) <= most else name[: most // 2 - 2] + "..." + name[len(name) - most // 2 + 1:]
    return name.replace("$", r"\$")


def plain_log_axis(axis) -> None:
    """1, 10, 0.01 instead of powers, as far as they stay readable; no labels between decades."""
    axis.set_major_formatter(ticker.FuncFormatter(lambda x, _: f"{x:,g}" if 1e-3 <= x < 1e6 else f"$10^{{{round(math.log10(x))}}}$"))
    low, high = axis.get_view_interval()
    if high / low < 30:  # less than two decades: label 2 and 5 too
        axis.set_major_locator(ticker.LogLocator(base=10, subs=(1, 2, 5)))
    axis.set_minor_formatter(ticker.NullFormatter())


def timed(run: Run) -> pd.DataFrame:
    rows = run.rows
    rows = rows[rows.outcome.isin(("passed", "noisy", "untrusted")) & np.isfinite(rows.time_us) & (rows.time_us > 0)].copy()
    rows["batch_kind"] = [kind_of_batch(r) for r in rows.itertuples()]
    rows["mode"] = np.where(rows.launch == "graph", "graph", rows.cache)
    rows["family"] = [family(r) for r in rows.itertuples()]
    return rows


# What was timed: how its points are filled, how its lines are drawn, what it is called.
MODES = {"cold": ("full", "-", "cold caches"), "hot": ("none", "--", "hot"), "graph": ("left", ":", "hot, graph replayed"),
         "dirty": ("right", "-.", "caches full of what others wrote")}
MODES_TEXT = "Filled points and full lines: cold caches; hollow and dashed: hot; half filled and dotted: hot, a captured graph replayed."


def mode_look(mode: str) -> tuple[str, str]:
    return MODES.get(mode, MODES["cold"])[:2]


def mode_handles(rows: pd.DataFrame) -> list:
    """For a legend; nothing when all rows are of one mode."""
    used = [m for m in MODES if m in set(rows["mode"])]
    return [lines.Line2D([], [], color=style.FAINT, marker="o", fillstyle=MODES[m][0], linestyle=MODES[m][1], label=MODES[m][2])
            for m in used] if len(used) > 1 else []


NO_TIMING = "No case of this run was timed. `assay run` and `assay bench` measure; `assay check` does not."


def family(row) -> str:
    """Cases that differ only in their lengths: what a line may connect."""
    fields = [w for w in row.scenario.split() if not w.startswith(("batch=", "seed="))]
    if trace_of(row.scenario):
        return row.scenario  # steps of a trace differ in everything
    return f"{' '.join(fields)} | {row.batch_kind} | {row.requests} | {row.mode}"


def throughput(run: Run) -> Picture:
    picture = Picture("throughput", "Throughput against length",
                      "One point per timed row. A line joins cases that differ only in their lengths. " + MODES_TEXT, wide=True)
    rows = timed(run)
    rows = rows[rows.max_kv_len > 0]
    if rows.empty:
        picture.message = NO_TIMING
        return picture
    # Reading the cache limits decode batches; arithmetic limits the others.
    panels = [(kind, title, metrics) for kind, title, metrics in (
        (rows.batch_kind == "decode", "Decode batches", (("gbytes_per_s", "GB/s"), ("tokens_per_s", "tokens/s"))),
        (rows.batch_kind != "decode", "Batches with prefill or extend", (("tflops", "TFLOP/s"), ("tokens_per_s", "tokens/s"))),
    ) if kind.any()]
    looks = style.kernel_style(run.kernels())
    figure, axes = plt.subplots(len(panels), 2, figsize=(12, 3.7 * len(panels) + 0.7), squeeze=False)
    used: set[str] = set()
    for row_of_axes, (kind, title, metrics) in zip(axes, panels):
        for axis, (column, unit) in zip(row_of_axes, metrics):
            shown = rows[kind & (rows[column] > 0)]
            for kernel, group in shown.groupby("kernel"):
                used.add(kernel)
                color, marker = looks[kernel]
                raster = len(shown) > RASTER_POINTS
                for mode, part in group.groupby("mode"):
                    axis.plot(part.max_kv_len, part[column], linestyle="none", marker=marker, markersize=5.5, color=color,
                              fillstyle=mode_look(mode)[0], markerfacecoloralt="white", alpha=0.85 if len(shown) < 300 else 0.4, rasterized=raster)
                families = group.groupby("family")
                for _, part in families:
                    if part.max_kv_len.nunique() < 2:
                        continue
                    dash = mode_look(part["mode"].iloc[0])[1]
                    part = part.groupby("max_kv_len")[column].median()  # repeated lengths: one point of the line
                    axis.plot(part.index, part, color=color, linewidth=1.4, linestyle=dash,
                              alpha=0.9 if len(families) < 12 else 0.35, rasterized=raster)
            read = run.limit("read_bytes_per_s")
            if column == "gbytes_per_s" and read:
                axis.axhline(read / 1e9, color=style.INK, linewidth=1, linestyle=":")
                axis.annotate("measured read bandwidth", (0, read / 1e9), xycoords=("axes fraction", "data"), xytext=(4, 3),
                              textcoords="offset points", fontsize=8.5, color=style.FAINT, zorder=5, path_effects=HALO)
            axis.set_xscale("log", base=2)
            axis.set_yscale("log")
            axis.margins(y=0.12)
            axis.xaxis.set_major_formatter(ticker.FuncFormatter(length_label))
            plain_log_axis(axis.yaxis)
            axis.set_title(f"{title}: {unit}")
            axis.set_ylabel(unit)
            axis.set_xlabel("longest visible context (tokens, k = 1024)")
    handles = [lines.Line2D([], [], color=looks[k][0], marker=looks[k][1], label=short(k)) for k in looks if k in used]
    handles += mode_handles(rows)
    figure.legend(handles=handles, loc="upper left", ncols=min(5, len(handles)), bbox_to_anchor=(0.01, 1.0))
    rows_of_legend = -(-len(handles) // 5)
    figure.tight_layout(rect=(0, 0, 1, 1 - (0.12 + 0.22 * rows_of_legend) / figure.get_figheight()), h_pad=2)
    picture.figure = figure
    picture.data = rows[["scenario", "kernel", "cache", "launch", "batch_kind", "max_kv_len", "tflops", "gbytes_per_s", "tokens_per_s"]]
    return picture


def roofline(run: Run) -> Picture:
    picture = Picture("roofline", "Roofline",
                      "Useful operations over useful bytes of each timed row, against what this machine was measured to reach "
                      "at the start of the run. " + MODES_TEXT)
    rows = timed(run)
    rows = rows[(rows.tflops > 0) & (rows.gbytes_per_s > 0)].copy()
    if rows.empty:
        picture.message = NO_TIMING
        return picture
    rows["flops_per_byte"] = rows.tflops * 1e3 / rows.gbytes_per_s
    read = run.limit("read_bytes_per_s")
    peaks = [(label, value) for label, value in (("fp32", run.limit("matrix_flops_fp32")), ("bf16", run.limit("matrix_flops_bf16")))
             if value]
    if not read and not peaks:
        picture.caption += " The limits of this machine were not recorded (run.json has none), so only the cases are drawn."
    figure, axis = plt.subplots(figsize=(7.2, 5.4))
    low, high = rows.flops_per_byte.min() / 2.5, rows.flops_per_byte.max() * 2.5
    if read and peaks:  # both roofs with their corner in view
        corners = [peak / read for _, peak in peaks]
        low, high = min(low, min(corners) / 4), max(high, max(corners) * 4)
    x = np.geomspace(low, high, 400)
    top = max(rows.tflops.max(), max((p / 1e12 for _, p in peaks), default=0), low * read / 1e12 if read else 0)
    if read:
        roof = max((p for _, p in peaks), default=np.inf)
        y = np.minimum(x * read, roof) / 1e12
        slope = x * read <= roof
        axis.plot(x[slope], y[slope], color=style.INK, linewidth=1.6)
        axis.text(0.02, 0.02, f"slope: read bandwidth {read / 1e9:.4g} GB/s", transform=axis.transAxes, fontsize=9, color=style.FAINT, zorder=5,
                  path_effects=HALO)
        top = max(top, y.max())
    # Labels above their line; when two peaks nearly agree, the lower one's goes below its line.
    close = len(peaks) == 2 and max(p for _, p in peaks) / min(p for _, p in peaks) < 1.5
    for label, peak in peaks:
        start = max(low, peak / read) if read else low
        axis.plot([start, high], [peak / 1e12] * 2, color=style.INK, linewidth=1.6)
        below = close and peak == min(p for _, p in peaks)
        axis.annotate(f"{label} matrix rate {peak / 1e12:.3g} TFLOP/s", (high, peak / 1e12), xytext=(0, -4 if below else 3),
                      textcoords="offset points", ha="right", va="top" if below else "bottom", fontsize=9, color=style.FAINT, zorder=5, path_effects=HALO)
    looks = style.kernel_style(run.kernels())
    for kernel, group in rows.groupby("kernel"):
        color, marker = looks[kernel]
        for mode, part in group.groupby("mode"):
            axis.plot(part.flops_per_byte, part.tflops, linestyle="none", marker=marker, markersize=6, color=color,
                      fillstyle=mode_look(mode)[0], markerfacecoloralt="white", alpha=0.8 if len(rows) < 300 else 0.35,
                      rasterized=len(rows) > RASTER_POINTS)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlim(low, high)
    axis.set_ylim(rows.tflops.min() / 3, top * 2.2)
    plain_log_axis(axis.xaxis)
    plain_log_axis(axis.yaxis)
    axis.set_xlabel("useful FLOP per useful byte")
    axis.set_ylabel("TFLOP/s")
    axis.set_title("Speed against arithmetic intensity")
    used = [k for k in looks if k in set(rows.kernel)]
    axis.legend(handles=[lines.Line2D([], [], color=looks[k][0], marker=looks[k][1], linestyle="none", label=short(k)) for k in used],
                loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2 if len(used) < 7 else 3)
    figure.tight_layout()
    picture.figure = figure
    picture.data = rows[["scenario", "kernel", "cache", "launch", "flops_per_byte", "tflops", "gbytes_per_s"]]
    return picture


def errors(run: Run) -> Picture:
    picture = Picture("errors", "Error over bound",
                      "The largest error of each case divided by its own bound. Right of 1 is wrong; a cloud that creeps "
                      "towards 1 is an early warning. The rounding of a 16-bit output is most of its ratio, so rings show O "
                      "without it: the least error before rounding that explains what was written, over the bound. Boxes: quartiles and median of the cases of a kernel.")
    rows = run.rows[run.rows.o_ratio.notna() | run.rows.lse_ratio.notna()]
    if rows.empty:
        picture.message = "No case of this run was compared with the reference. `assay check` and `assay run` compare."
        return picture
    kernels = [k for k in run.kernels() if k in set(rows.kernel)]
    finite = pd.concat([rows.o_ratio, rows.lse_ratio])
    finite = finite[np.isfinite(finite) & (finite > 0)]
    low = 10 ** math.floor(math.log10(min(finite.min(), 0.05))) if len(finite) else 1e-2
    low = max(low, 1e-6)
    top = 10 ** math.ceil(math.log10(max(finite.max(), 5))) if len(finite) else 10
    top = min(top, 1e9)
    infinite = bool((rows[["o_ratio", "lse_ratio"]].max(axis=1) > top).any())
    high = top * (14 if infinite else 1)
    unrounded = rows.o_ratio_unrounded.notna().any()
    figure, axes = plt.subplots(1, 2, figsize=(7.2, max(3.4, 2.3 + 0.72 * len(kernels))), sharey=True, squeeze=False)
    shown_outcomes = []
    for axis, (column, title) in zip(axes[0], (("o_ratio", "Output O"), ("lse_ratio", "Log-sum-exp"))):
        axis.axvspan(1, high, color="#D55E00", alpha=0.07, linewidth=0)
        axis.axvline(1, color="#D55E00", linewidth=1.4)
        for i, kernel in enumerate(kernels):
            group = rows[(rows.kernel == kernel) & rows[column].notna()]
            if group.empty:
                continue
            y = i + spread(len(group))
            x = group[column].clip(low, top * 6 if infinite else high)  # zeros at the left edge, infinities at the right
            for outcome, part in group.groupby("outcome"):
                mask = (group.outcome == outcome).to_numpy()
                color = style.OUTCOME_COLORS.get(outcome, style.UNKNOWN_COLOR)
                axis.scatter(x[mask], y[mask], s=14, color=color, alpha=0.75 if len(group) < 200 else 0.35, linewidth=0,
                             rasterized=len(rows) > RASTER_POINTS, zorder=3)
                if outcome not in shown_outcomes:
                    shown_outcomes.append(outcome)
            if unrounded and column == "o_ratio":
                axis.scatter(group.o_ratio_unrounded.clip(low, high), y, s=14, facecolors="none", edgecolors=style.INK, linewidths=0.5,
                             alpha=0.6 if len(group) < 200 else 0.25, rasterized=len(rows) > RASTER_POINTS, zorder=2)
            if len(x) >= 4:
                q1, middle, q3 = np.percentile(x, (25, 50, 75))
                axis.fill_betweenx([i - 0.34, i + 0.34], q1, q3, facecolor="none", edgecolor=style.INK, linewidth=1, zorder=4)
                axis.plot([middle] * 2, [i - 0.34, i + 0.34], color=style.INK, linewidth=2, zorder=4)
        axis.set_xscale("log")
        axis.set_xlim(low / 1.3, high)
        axis.set_ylim(len(kernels) - 0.45, -0.55)
        decades = [10.0 ** e for e in range(round(math.log10(low)), round(math.log10(top)) + 1)]
        room = (7.2 - 0.085 * max(len(short(k)) for k in kernels) - 0.5) / 2  # inches of a panel beside the names
        thin = max(1, math.ceil((len(decades) + infinite) * 0.5 / room))  # half an inch a label; 1 is always among them
        ticks = [d for d in decades if round(math.log10(d)) % thin == 0]
        axis.xaxis.set_major_locator(ticker.FixedLocator(ticks + ([top * 6] if infinite else [])))
        axis.xaxis.set_major_formatter(ticker.FuncFormatter(lambda v, _: "inf" if infinite and v > top else f"{v:g}"
                                                            if 1e-3 <= v <= 1e3 else f"$10^{{{round(math.log10(v))}}}$"))
        axis.xaxis.set_minor_locator(ticker.NullLocator())
        axis.set_xlabel("largest error / its bound")
        axis.set_title(title)
        axis.grid(axis="y", visible=False)
    axes[0][0].set_yticks(range(len(kernels)), [short(k) for k in kernels])
    order = [o for o in (*OUTCOMES, *shown_outcomes) if o in shown_outcomes]
    handles = [lines.Line2D([], [], linestyle="none", marker="o", markersize=5, color=style.OUTCOME_COLORS.get(o, style.UNKNOWN_COLOR),
                            label=short((o or "no outcome").replace("_", " "))) for o in dict.fromkeys(order)]
    if unrounded:
        handles.append(lines.Line2D([], [], linestyle="none", marker="o", markersize=5, markerfacecolor="none", markeredgecolor=style.INK,
                                    markeredgewidth=0.6, label="O before rounding"))
    figure.legend(handles=handles, loc="lower center", ncols=len(handles))
    figure.tight_layout(rect=(0, 0.32 / figure.get_figheight(), 1, 1))
    picture.figure = figure
    picture.data = rows[["scenario", "kernel", "outcome", "o_ratio", "o_ratio_unrounded", "lse_ratio", "o_max_error", "lse_max_error"]]
    return picture


def spread(n: int) -> np.ndarray:
    """Evenly scattered heights within a kernel's strip, the same for every run (no random jitter)."""
    return ((np.arange(n) * 0.6180339887) % 1 - 0.5) * 0.56 if n > 1 else np.zeros(n)


TRACE = re.compile(r"\bbatch=trace\((.*?)\)(?:\s|$)")


def trace_of(scenario: str) -> tuple[str, int] | None:
    """("azure.csv, tokens=8192", 500) of a trace scenario."""
    match = TRACE.search(scenario)
    if not match:
        return None
    words = match.group(1).split(",")
    step = [w for w in words if re.fullmatch(r"step=\d+", w)]
    others = [pathlib.PurePosixPath(words[0]).name] + [w for w in words[1:] if w not in step]
    return ", ".join(others), int(step[0][5:]) if step else 0


def mix(run: Run) -> Picture:
    picture = Picture("mix", "Batch mix of the traces",
                      "What an engine replaying the trace has in hand at each step: requests and new tokens by kind. Decode "
                      "requests bring one token each.", wide=True)
    found = [(trace, row) for row, trace in ((r, trace_of(r.scenario)) for r in run.rows.itertuples()) if trace]
    steps: dict[tuple[str, int], dict] = {}
    for (name, step), row in found:
        counts = (row.decodes, row.extends, row.prefills, row.tokens)
        if not all(np.isfinite(c) for c in counts):  # a case that could not be built has none
            continue
        rest = max(row.tokens - row.decodes, 0)
        both = row.extends > 0 and row.prefills > 0  # rows.csv has one count of tokens: these two cannot be told apart
        steps.setdefault((name, step), {
            "trace": name, "step": step, "decode": row.decodes, "extend": row.extends, "prefill": row.prefills,
            "decode_tokens": row.decodes, "extend_tokens": rest if row.extends and not both else 0,
            "prefill_tokens": rest if row.prefills and not both else 0, "extend_and_prefill_tokens": rest if both else 0})
    if not steps:
        picture.message = ("No case of this run replays a trace." if not found else
                           "No trace case of this run could be built, so there is no mix to show.")
        return picture
    data = pd.DataFrame(steps.values()).sort_values(["trace", "step"], ignore_index=True)
    names = list(dict.fromkeys(data.trace))
    figure, axes = plt.subplots(len(names), 2, figsize=(12, 3.1 * len(names) + 0.6), squeeze=False)
    for row_of_axes, name in zip(axes, names):
        part = data[data.trace == name]
        at = np.arange(len(part))
        for axis, unit, suffix in zip(row_of_axes, ("requests", "new tokens"), ("", "_tokens")):
            base = np.zeros(len(part))
            series = [("decode", "decode" + suffix), ("extend", "extend" + suffix), ("prefill", "prefill" + suffix)]
            if suffix:
                series.append(("extend + prefill", "extend_and_prefill_tokens"))
            for label, column in series:
                height = part[column].to_numpy(float)
                axis.bar(at, height, bottom=base, width=0.82, color=style.MIX_COLORS[label], linewidth=0)
                base += height
            axis.set_ylabel(unit)
            axis.set_xlabel("engine step")
            axis.yaxis.set_major_locator(ticker.MaxNLocator(5, integer=True))
            axis.yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:,.0f}"))
            axis.set_ylim(0, max(base.max() * 1.08, 1))
            thin = max(1, math.ceil(len(part) / 12))
            axis.set_xticks(at[::thin], [f"{s:d}" for s in part.step.iloc[::thin]])
            axis.set_xlim(-0.7, max(len(part), 4) - 0.3)  # few steps: narrow bars on the left, not slabs
            axis.grid(axis="x", visible=False)
        row_of_axes[0].set_title(short(name, 56))
    used = [k for k, column in (("decode", "decode"), ("extend", "extend"), ("prefill", "prefill"),
                                ("extend + prefill", "extend_and_prefill_tokens")) if data[column].sum() > 0]
    handles = [plt.Rectangle((0, 0), 1, 1, color=style.MIX_COLORS[k], label=k) for k in used]
    figure.legend(handles=handles, loc="upper left", ncols=4, bbox_to_anchor=(0.01, 1.0))
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.34 / figure.get_figheight()), h_pad=2)
    picture.figure, picture.data = figure, data
    return picture


PICTURES = (throughput, roofline, errors, mix)


def draw_all(run: Run, out: pathlib.Path) -> list[Picture]:
    """Draws every picture into `out` (NAME.svg, NAME.png, NAME.csv) and returns them."""
    out.mkdir(parents=True, exist_ok=True)
    pictures = []
    for draw in PICTURES:
        picture = draw(run)
        for suffix in ("svg", "png", "csv"):  # of an earlier report: must not be taken for this run's
            (out / f"{picture.name}.{suffix}").unlink(missing_ok=True)
        if picture.figure is not None:
            picture.figure.savefig(out / f"{picture.name}.svg", dpi=200, metadata={"Date": None})
            picture.figure.savefig(out / f"{picture.name}.png", dpi=150)
            plt.close(picture.figure)
            picture.svg = (out / f"{picture.name}.svg").read_bytes()
            picture.csv = picture.data.to_csv(index=False)
            (out / f"{picture.name}.csv").write_text(picture.csv, encoding="utf-8")
        pictures.append(picture)
    return pictures
