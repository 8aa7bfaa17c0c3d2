#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws how small a fault is still seen, against the number of keys: one panel per fault and format.

Usage: power_picture.py POWER.csv PICTURE.png

The CSV is what `assay power --out FILE` writes. A line is the smallest size that half of the draws are rejected for; the
black band reaches to 95 % of them. Where a line ends, nothing of the fault is seen, or the detector was not asked; a question
mark at the bottom: not reached (black: nothing of the point, else inputs with a known answer).
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from reporting import style  # noqa: E402  (sets the look of all pictures)

import matplotlib.pyplot as plt  # noqa: E402
import matplotlib.ticker as ticker  # noqa: E402
import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402

FIELDS = ["format", "keys", "fault", "draw"]
OURS = {"D": "#4477AA", "P": "#2FA6CC", "R": "#228833", "LSE": "#AA3377", "aggregates": "#E69F00", "incidence": "#D55E00"}
TITLES = {"key_weight": "one key's weight", "softmax_scale": "softmax scale", "output_bias": "bias of O", "p_format": "format of P", "v_format": "format of V",
          "partial_format": "format of partial results", "accumulator": "accumulator of P V", "mask_shift": "newest keys unseen"}
# Sizes with a name, for a dotted line.
NAMED = {"accumulator": {"fp16": 2.0**-11}, "p_format": {"fp16": 2.0**-11, "bf16": 2.0**-8, "e4m3": 2.0**-4},
         "v_format": {"e4m3": 2.0**-4}, "partial_format": {"fp16": 2.0**-11, "bf16": 2.0**-8}}
UNITS = {"key_weight": "relative error", "softmax_scale": "relative error", "output_bias": "relative error", "mask_shift": "keys"}


def shares(draws: pd.Series, share: float) -> float:
    """The size that this share of the draws does not exceed; NaN where that is none, was not asked or not reached."""
    asked = draws[~draws.isin(["-", "?"])]
    if asked.empty or (asked == "x").any():
        return np.nan
    sizes = np.sort([float(x) if x else np.inf for x in asked])
    size = sizes[int(np.ceil(share * len(sizes))) - 1]
    return size if np.isfinite(size) else np.nan


def load(path: str) -> pd.DataFrame:
    rows = pd.read_csv(path, comment="#", dtype=str, keep_default_na=False)
    missing = [f for f in FIELDS + list(OURS) + ["ours"] if f not in rows.columns]
    if missing:
        raise ValueError(f"{path}: no record of assay power, it has no column {missing[0]}")
    if rows.empty:
        raise ValueError(f"{path}: holds no draw")
    rows["keys"] = rows["keys"].astype(int)
    return rows


def curve(rows: pd.DataFrame, detector: str, share: float) -> pd.Series:
    return rows.groupby("keys")[detector].apply(lambda draws: shares(draws, share)).sort_index()


def not_reached(rows: pd.DataFrame, detector: str) -> list[int]:
    """Lengths at which no draw was reached."""
    all_of = rows.groupby("keys")[detector].apply(lambda draws: (draws == "?").all())
    return list(all_of[all_of].index)


def draw(rows: pd.DataFrame) -> plt.Figure:
    peers = [c for c in rows.columns if c not in [*FIELDS, *OURS, "ours"]]
    faults, formats = list(dict.fromkeys(rows.fault)), list(dict.fromkeys(rows.format))
    figure, panels = plt.subplots(len(faults), len(formats), figsize=(3.6 * len(formats) + 1, 2.5 * len(faults) + 1), sharex=True,
                                  sharey="row", squeeze=False, layout="constrained")
    for fault, line in zip(faults, panels):
        for name, axes in zip(formats, line):
            part = rows[(rows.fault == fault) & (rows.format == name)]
            if part.empty:
                axes.set_axis_off()
                continue
            for i, peer in enumerate(peers):
                c = curve(part, peer, 0.5)
                axes.plot(c.index, c, color="#8A8F98", linewidth=1, marker=style.MARKERS[i % len(style.MARKERS)], markersize=4.5,
                          markerfacecolor="white", label=peer)
            for detector, color in OURS.items():
                c = curve(part, detector, 0.5)
                axes.plot(c.index, c, color=color, linewidth=1.3, linestyle="--" if detector == "incidence" else "-", label=detector,
                          marker="o", markersize=2.5)  # a length between two that were not reached has no line
            half, most = curve(part, "ours", 0.5), curve(part, "ours", 0.95)
            axes.fill_between(half.index, half, most, color=style.INK, alpha=0.15, linewidth=0)
            axes.plot(half.index, half, color=style.INK, linewidth=2.4, label="ours, random inputs", zorder=3,
                      marker="o", markersize=4)
            nothing = not_reached(part, "ours")
            for keys in nothing + [k for k in not_reached(part, "incidence") if k not in nothing]:
                axes.annotate("?", (keys, 0.02), xycoords=("data", "axes fraction"), ha="center", fontsize=9, fontweight="bold",
                              color=style.INK if keys in nothing else OURS["incidence"])
            for text, size in NAMED.get(fault, {}).items():
                axes.axhline(size, color=style.INK, linewidth=0.8, linestyle=":")
                axes.annotate(text, (1, size), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=6.5)
            axes.set_xscale("log", base=2)
            axes.set_yscale("log", base=2)
            axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda x, _: f"{int(x) >> 10}k" if x >= 1024 else f"{int(x)}"))
            axes.set_xticks(sorted(rows["keys"].unique()))
            axes.minorticks_off()
            axes.tick_params(axis="x", labelrotation=60, labelbottom=True)
        line[0].set_ylabel(UNITS.get(fault, "unit roundoff"))
        for name, axes in zip(formats, line):
            axes.set_title(f"{TITLES.get(fault, fault)}, {name}", fontsize=9.5)
    for axes in panels[-1]:
        axes.set_xlabel("keys")
    handles, labels = [], []
    for axes in panels.flat:
        for handle, label in zip(*axes.get_legend_handles_labels()):
            if label not in labels:
                handles.append(handle), labels.append(label)
    height = figure.get_size_inches()[1]
    figure.get_layout_engine().set(rect=(0, 0, 1, 1 - 0.95 / height))  # room for the legend
    figure.text(0.01, 1 - 0.1 / height, "Smallest fault that half of the draws are rejected for (lower is better; band: 95 %; ?: not reached)", va="top",
                fontweight="bold")
    figure.legend(handles, labels, loc="upper left", bbox_to_anchor=(0, 1 - 0.3 / height), ncols=7)
    return figure


def main(arguments: list[str]) -> int:
    if len(arguments) != 2 or arguments[0] in ("-h", "--help"):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    try:
        rows = load(arguments[0])
    except (OSError, ValueError) as error:
        print(f"power_picture: {error}", file=sys.stderr)
        return 2
    draw(rows).savefig(arguments[1], dpi=130)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
