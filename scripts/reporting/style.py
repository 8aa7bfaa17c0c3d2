# SPDX-License-Identifier: Apache-2.0
"""How everything looks, in one place. Colours are told apart with the common kinds of colour blindness
(outcomes: Okabe and Ito 2008; kernels: Paul Tol's "bright" and "high-contrast" sets, with a marker each,
so that a grey print is readable as well).
"""
import matplotlib

matplotlib.use("Agg")  # no display needed

OUTCOME_COLORS = {
    "passed": "#009E73", "wrong": "#D55E00", "unsupported": "#8A8F98", "untrusted": "#E69F00",
    "crashed": "#B3447A", "timed_out": "#3A8FC7", "invalid": "#5B4FA2",
    "implausible": "#7A4E1D", "noisy": "#A3B18A",
}
UNKNOWN_COLOR = "#000000"
KERNEL_COLORS = ("#4477AA", "#EE6677", "#228833", "#B59A12", "#2FA6CC", "#AA3377", "#004488", "#997700", "#994455", "#6B6B6B")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p")
MIX_COLORS = {"decode": "#4477AA", "extend": "#E69F00", "prefill": "#228833", "extend + prefill": "#B59A12"}

INK, FAINT, GRID = "#1d2530", "#66707c", "#e3e7ec"

matplotlib.rcParams.update({
    "figure.facecolor": "white", "axes.facecolor": "white", "savefig.facecolor": "white",
    "font.family": "DejaVu Sans", "font.size": 10, "axes.titlesize": 11, "axes.titleweight": "bold",
    "axes.titlelocation": "left", "axes.labelsize": 10, "axes.labelcolor": INK, "axes.edgecolor": FAINT,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "axes.axisbelow": True,
    "grid.color": GRID, "grid.linewidth": 0.8, "xtick.color": FAINT, "ytick.color": FAINT, "text.color": INK,
    "xtick.labelcolor": INK, "ytick.labelcolor": INK, "legend.frameon": False, "legend.fontsize": 9,
    "svg.hashsalt": "assay",  # the same data gives the same file
})


def kernel_style(kernels: list[str]) -> dict[str, tuple[str, str]]:
    """Colour and marker of each kernel, by its place in the list of all kernels."""
    return {k: (KERNEL_COLORS[i % len(KERNEL_COLORS)], MARKERS[i % len(MARKERS)]) for i, k in enumerate(kernels)}
