#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws an explanation: the error of each row by key, with the edges of what the row sees, of pages and of splits.

Usage: explain_picture.py EXPLANATION.json PICTURE.png

The JSON is what `assay explain --json FILE` writes. Colour is the change of a key's weight that explains the error of O
(least squares): blue keys weigh too little, red ones too much. Wrong rows have a red name.
"""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from reporting import style  # noqa: E402  (sets the look of all pictures)

import matplotlib.colors as colors  # noqa: E402
import matplotlib.pyplot as plt  # noqa: E402
import numpy as np  # noqa: E402

MOST_COLUMNS = 512  # more keys than this are drawn as groups of neighbours
SEEN, SPLIT, PAGE = "#1d2530", "#AA3377", "#b9c2cc"


def grouped(values: np.ndarray, group: int) -> np.ndarray:
    """Sums over groups of neighbouring keys."""
    rows, keys = values.shape
    padded = np.zeros((rows, -(-keys // group) * group))
    padded[:, :keys] = values
    return padded.reshape(rows, -1, group).sum(axis=2)


def draw(explanation: dict, path: str) -> None:
    heat = explanation["heat"]
    rows, keys = heat["rows"], heat["keys"]
    several_rows = len({r["row"] for r in rows}) > 1
    group = max(1, -(-keys // MOST_COLUMNS))
    change = grouped(np.array([[float(x) for x in r["change"]] for r in rows]).reshape(len(rows), keys), group)
    largest = float(np.abs(change).max()) if change.size else 0.0
    limit = largest if largest > 0 else 1.0

    height = min(11.0, 2.6 + 0.22 * len(rows))
    figure, (axes, side) = plt.subplots(1, 2, figsize=(12, height), width_ratios=(8, 1), sharey=True, layout="constrained")
    axes.grid(False)
    # Small changes stay visible beside large ones.
    norm = colors.SymLogNorm(linthresh=limit / 100, vmin=-limit, vmax=limit)
    image = axes.imshow(change, aspect="auto", cmap="RdBu_r", norm=norm, interpolation="nearest",
                        extent=(-0.5, change.shape[1] * group - 0.5, len(rows) - 0.5, -0.5))
    page = heat["page"]
    if page > 1 and keys / page <= 80:
        for edge in range(page, keys, page):
            axes.axvline(edge - 0.5, color=PAGE, linewidth=0.6)
    for edge in heat["splits"]:
        axes.axvline(edge - 0.5, color=SPLIT, linewidth=1.6, linestyle="--")
    for i, r in enumerate(rows):
        if r["begin"] < r["end"]:
            axes.plot([r["begin"] - 0.5] * 2, [i - 0.5, i + 0.5], color=SEEN, linewidth=1.6)
            axes.plot([r["end"] - 0.5] * 2, [i - 0.5, i + 0.5], color=SEEN, linewidth=1.6)
        if not r["finite"]:
            axes.text(keys / 2, i, "NaN, infinite or poison", ha="center", va="center", fontsize=8, color=style.FAINT)
    axes.set_xlim(-0.5, max(keys, 1) - 0.5)
    step = max(1, len(rows) // 32)
    axes.set_yticks(range(0, len(rows), step), [str(r["row"] if several_rows else r["head"]) for r in rows][::step])
    for label, r in zip(axes.get_yticklabels(), rows[::step]):
        label.set_color("#C62828" if r["bad"] else style.INK)
    axes.set_xlabel("key" + (f" ({group} neighbours summed)" if group > 1 else ""))
    head = rows[0]["head"]
    axes.set_ylabel(f"row (head {head})" if several_rows else f"head (row {rows[0]['row']})")
    ticks = [-limit, -limit / 10, 0, limit / 10, limit]
    bar = figure.colorbar(image, ax=axes, label="change of weight", location="right", fraction=0.03, pad=0.01, ticks=ticks)
    bar.ax.set_yticklabels([f"{t:.1g}" for t in ticks])
    bar.ax.minorticks_off()

    errors = [float(r["error"]) if r["finite"] else np.nan for r in rows]
    side.barh(range(len(rows)), errors, color=["#C62828" if r["bad"] else "#4477AA" for r in rows])
    side.set_xscale("symlog", linthresh=1)
    top = np.nanmax(errors) if np.isfinite(errors).any() else 1.0
    decade = max(1, round(np.log10(max(top, 10)) / 2))
    side.set_xticks([0, 10**decade, 10 ** (2 * decade)], ["0", f"$10^{{{decade}}}$", f"$10^{{{2 * decade}}}$"])
    side.minorticks_off()
    side.set_xlabel("error of O /\nlegal noise")
    side.tick_params(axis="y", labelleft=False)

    first = explanation["causes"][0] if explanation["causes"] else None
    title = f"{explanation['kernel']}, request {heat['request']}: {explanation['outcome']}"
    if first:
        title += f"\n{first['cause']}: {first['how'] if len(first['how']) < 110 else first['how'][:107] + '...'}"
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    legend = "black: first and last key the row sees"
    if page > 1 and keys / page <= 80:
        legend += f"; grey: pages of {page}"
    if heat["splits"]:
        legend += "; dashed: splits"
    figure.supxlabel(explanation["scenario"] + "\n" + legend, fontsize=8, color=style.FAINT, x=0.01, ha="left")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main() -> int:
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        explanation = json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        print(f"{sys.argv[1]}: {error}; accepted is what `assay explain --json FILE` writes", file=sys.stderr)
        return 2
    if "heat" not in explanation:
        print(f"{sys.argv[1]}: holds no errors to draw (every element lies in its interval)", file=sys.stderr)
        return 2
    draw(explanation, sys.argv[2])
    return 0


if __name__ == "__main__":
    sys.exit(main())
