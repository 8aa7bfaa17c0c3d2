#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reading a results folder, the pictures, and scripts/report as a command: every message for bad input,
what each picture shows (through its CSV and its artists), and that no labels overlap.

    /usr/bin/python3 -m pytest scripts/test_plots.py
"""
import io
import math
import os
import pathlib
import re
import subprocess
import sys

import matplotlib.collections
import matplotlib.colors
import matplotlib.image
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))
import report as report_command  # noqa: E402
from reporting import plots, rows, style, synthetic  # noqa: E402


def run_of(folder, made, info="made"):
    return rows.load(synthetic.write(folder, made, synthetic.run_info() if info == "made" else info))


@pytest.fixture
def report(capsys):
    """scripts/report.py without the second that a new python needs for its imports."""

    def call(*arguments):
        status = report_command.main([str(a) for a in arguments])
        return subprocess.CompletedProcess(arguments, status, *capsys.readouterr())

    return call


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


# ---- reading

def test_columns_are_those_the_program_declares():
    described = re.findall(r"^\| `(\w+)`", (HERE.parent / "harness/report/COLUMNS.md").read_text(), re.M)
    assert sorted(described) == sorted(rows.TEXT + rows.NUMBERS)


def test_reads_back_what_was_written(tmp_path):
    made = synthetic.mixed_rows()
    made[0]["reason"] = 'a, "quoted" one'
    run = run_of(tmp_path, made)
    assert run.warnings == [] and len(run.rows) == len(made)
    for name in rows.TEXT:
        assert list(run.rows[name]) == [r[name] for r in made]
    for name in rows.NUMBERS:
        np.testing.assert_array_equal(run.rows[name], [math.nan if r[name] == "" else float(r[name]) for r in made])


@pytest.mark.parametrize("damage, message", [
    (lambda t: "", "rows.csv:1: no line of columns"),
    (lambda t: t.replace("kernel,", "kernal,", 1), "rows.csv:1: no column kernel; expected"),
    (lambda t: t.replace("backend,", "kernel,", 1), "rows.csv:1: column kernel appears twice"),
    (lambda t: t.replace("\n", "\nbroken,line\n", 2), "rows.csv:2: 2 cells; expected " + str(len(rows.TEXT + rows.NUMBERS)) + ", one per column of line 1"),
    (lambda t: re.sub(r"(\n.*?\n.*?),8,8,", r"\1,eight,8,", t, 1), "rows.csv:3: 'eight' is no number in column 'requests'; expected a number"),
    (lambda t: re.sub(r"(\n.*?\n.*?),8,8,", r"\1,1_0,8,", t, 1), "rows.csv:3: '1_0' is no number"),
    (lambda t: re.sub(r"(\n.*?\n.*?),8,8,", r"\1,nan,8,", t, 1), "rows.csv:3: 'nan' is no number"),
    (lambda t: t.replace("\npaged", '\n"paged"x', 1), "rows.csv:2: "),
    (lambda t: t.replace("paged", "pa\0ed", 1), "rows.csv:2: zero byte"),
    (lambda t: t.replace("paged", "pag\udcffed", 1), "rows.csv:2: a byte that is not UTF-8"),
])
def test_broken_rows_are_named(report, tmp_path, damage, message):
    synthetic.write(tmp_path, synthetic.rows(), synthetic.run_info())
    path = tmp_path / "rows.csv"
    path.write_bytes(damage(path.read_text()).encode("utf-8", "surrogateescape"))
    done = report(tmp_path)
    assert done.returncode == 2 and done.stdout == ""
    assert message in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "report").exists()  # nothing half done


def test_half_written_last_line_is_left_out_and_said(tmp_path):
    made = synthetic.rows()
    path = synthetic.write(tmp_path, made, None) / "rows.csv"
    path.write_bytes(path.read_bytes()[:-9])
    run = rows.load(tmp_path)
    assert len(run.rows) == len(made) - 1
    assert "the last line is half written" in run.warnings[0]


@pytest.mark.parametrize("text, message", [("{", "run.json:1:2: "), ("[]", "run.json:1:1: a list; expected an object"), ("[" * 200000, "lists in lists without end")])
def test_broken_run_json(report, tmp_path, text, message):
    synthetic.write(tmp_path, synthetic.rows(), None)
    (tmp_path / "run.json").write_text(text)
    done = report(tmp_path)
    assert done.returncode == 2 and message in done.stderr


def test_kernel_order_does_not_depend_on_the_rows(tmp_path):
    made = [r for r in synthetic.rows() if r["kernel"] != "paged_fast"]
    kernels = run_of(tmp_path / "a", made).kernels()
    assert kernels == list(synthetic.KERNELS)  # paged_fast keeps its colour although it has no row
    assert run_of(tmp_path / "b", made, None).kernels() == ["paged_naive", "prefill_fast", "prefill_naive"]


# ---- the command

def test_command_line(tmp_path):
    folder = synthetic.write(tmp_path / "run", synthetic.mixed_rows(), synthetic.run_info())
    done = subprocess.run([str(HERE / "report"), str(folder), "--out", str(tmp_path / "out"), "--open-note"], capture_output=True, text=True,
                          env={**os.environ, "ASSAY_PYTHON": sys.executable, "PYTHONDONTWRITEBYTECODE": "1"})
    assert done.returncode == 0, done.stderr
    assert f"report: {tmp_path}/out/index.html" in done.stdout and f"file://{tmp_path}/out/index.html" in done.stdout
    names = sorted(p.name for p in (tmp_path / "out/plots").iterdir())
    assert names == sorted(f"{n}.{s}" for n in ("throughput", "roofline", "errors", "mix") for s in ("csv", "png", "svg"))
    assert not (folder / "report").exists()


def test_bad_folders(report, tmp_path):
    assert "no such folder; expected the results folder" in report(tmp_path / "none").stderr
    done = report(tmp_path)
    assert done.returncode == 2 and "no rows.csv inside" in done.stderr
    synthetic.write(tmp_path, [], None)
    (tmp_path / "file").write_text("")
    done = report(tmp_path, "--out", tmp_path / "file")
    assert done.returncode == 6 and "cannot write to" in done.stderr and "--out" in done.stderr


def test_missing_packages_are_named(tmp_path):
    command = [sys.executable, "-S", "-I", str(HERE / "report.py"), str(tmp_path)]  # without site-packages
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 6
    assert "has no numpy, pandas, matplotlib, jinja2; run scripts/setup" in done.stderr


def test_wrapper_passes_over_a_python_without_packages(tmp_path):
    bare = tmp_path / "python3"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    bare.chmod(0o755)
    synthetic.write(tmp_path, [], None)
    path = f"{tmp_path}:{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run([str(HERE / "report"), str(tmp_path)], capture_output=True, text=True,
                          env={**os.environ, "ASSAY_PYTHON": str(bare), "PATH": path, "PYTHONDONTWRITEBYTECODE": "1"})
    assert done.returncode == 0, done.stderr


# ---- the pictures

def overlaps(figure) -> list[str]:
    """Pairs of texts that cover each other, and texts that leave the figure."""
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    texts = list(figure.texts) + [t for legend in figure.legends for t in legend.get_texts()]
    for axis in figure.axes:
        texts += [axis.xaxis.label, axis.yaxis.label, axis.title, axis._left_title, *axis.texts]
        # Of the ticks only those inside the limits are drawn.
        texts += [tick.label1 for side in (axis.xaxis, axis.yaxis) for tick in side._update_ticks()]
        legend = axis.get_legend()
        texts += legend.get_texts() if legend else []
    boxes = [(t.get_text(), t.get_window_extent(renderer)) for t in texts if t.get_text() and t.get_visible()]
    width, height = figure.canvas.get_width_height()
    found = [f"{text} outside" for text, b in boxes if b.x0 < -1 or b.y0 < -1 or b.x1 > width + 1 or b.y1 > height + 1]
    for i, (text, a) in enumerate(boxes):
        for other, b in boxes[i + 1:]:
            if min(a.x1, b.x1) - max(a.x0, b.x0) > 0.5 and min(a.y1, b.y1) - max(a.y0, b.y0) > 0.5:
                found.append(f"{text!r} over {other!r}")
    return found


@pytest.mark.parametrize("made", ["mixed", "two traces", "long names", "many kernels", "one row"])
def test_labels_do_not_overlap(tmp_path, made):
    info = synthetic.run_info()
    table = synthetic.mixed_rows()
    if made == "two traces":
        table += [{**r, "scenario": r["scenario"].replace("Azure", "a_trace_with_quite_a_long_file_name_")} for r in table if "trace(" in r["scenario"]]
    elif made == "long names":
        table = [{**r, "kernel": r["kernel"] + "_with_a_rather_long_name_sm100a"} for r in table]
        info["kernels"] = None
    elif made == "many kernels":
        table = [{**r, "kernel": f"{r['kernel']}_{i}"} for i in range(3) for r in table]
        info["kernels"] = None
    elif made == "one row":
        table = table[:1]
    run = run_of(tmp_path, table, info)
    drawn = 0
    for draw in plots.PICTURES:
        picture = draw(run)
        if picture.figure is not None:
            drawn += 1
            assert overlaps(picture.figure) == [], picture.name
    assert drawn == (3 if made == "one row" else 4)


def test_throughput_shows_every_passed_and_timed_case(tmp_path):
    made = synthetic.mixed_rows()
    made[3].update(time_us=1.0, tflops=99.0, gbytes_per_s=99.0, tokens_per_s=99.0)  # fast and wrong is not a result
    picture = plots.throughput(run_of(tmp_path, made))
    timed = [r for r in made if r["outcome"] == "passed"]
    assert len(picture.data) == len(timed)
    decode = [r for r in timed if r["decodes"] == r["requests"]]
    looks = style.kernel_style(list(synthetic.KERNELS))
    points = {}
    for line in picture.figure.axes[0].lines:
        if line.get_marker() not in ("None", None, ""):
            points.setdefault(line.get_color(), []).extend(zip(line.get_xdata(), line.get_ydata()))
    for kernel in ("paged_fast", "paged_naive"):
        expected = sorted((r["max_kv_len"], r["gbytes_per_s"]) for r in decode if r["kernel"] == kernel)
        np.testing.assert_allclose(sorted(points[looks[kernel][0]]), expected)
    assert looks["prefill_fast"][0] not in points


def test_roofline_meets_the_measured_limits(tmp_path):
    picture = plots.roofline(run_of(tmp_path, synthetic.rows()))
    axis = picture.figure.axes[0]
    roof = max((line for line in axis.lines if len(line.get_xdata()) > 50), key=lambda line: len(line.get_xdata()))
    np.testing.assert_allclose(roof.get_ydata(), roof.get_xdata() * synthetic.READ / 1e12)
    flat = sorted(set(line.get_ydata()[0] for line in axis.lines if len(line.get_xdata()) == 2 and line.get_marker() == "None"))
    np.testing.assert_allclose(flat, [synthetic.FP32 / 1e12, synthetic.BF16 / 1e12])
    data = picture.data
    np.testing.assert_allclose(data.flops_per_byte, data.tflops * 1e12 / (data.gbytes_per_s * 1e9))
    assert any("17.2 GB/s" in t.get_text() for t in axis.texts)


def test_roofline_without_limits_says_so(tmp_path):
    picture = plots.roofline(run_of(tmp_path, synthetic.rows(), None))
    assert "were not recorded" in picture.caption
    assert all(line.get_marker() != "None" for line in picture.figure.axes[0].lines)


def test_errors_show_outcomes_infinity_and_the_line_at_one(tmp_path):
    picture = plots.errors(run_of(tmp_path, synthetic.mixed_rows()))
    axis = picture.figure.axes[0]
    assert any(np.allclose(line.get_xdata(), 1) for line in axis.lines)
    color = matplotlib.colors.to_rgb(style.OUTCOME_COLORS["wrong"])
    drawn = [c for c in axis.collections if isinstance(c, matplotlib.collections.PathCollection)]
    points = [c for c in drawn if len(c.get_facecolor())]
    rings = [c for c in drawn if not len(c.get_facecolor())]  # without the output's rounding
    assert rings and max(x for c in rings for x, _ in c.get_offsets() if np.isfinite(x)) < 1
    wrong = [c for c in points if np.allclose(c.get_facecolor()[0][:3], color)]
    at = sorted(float(x) for c in wrong for x, _ in c.get_offsets())
    assert len(at) == 2 and at[0] == pytest.approx(41.5) and at[1] > 100  # the infinite one, at its own tick
    labels = {t.get_text(): t.get_position()[0] for t in axis.get_xticklabels()}
    assert labels["inf"] == pytest.approx(at[1]) and "1" in labels
    assert at[1] < axis.get_xlim()[1]


def test_mix_of_a_trace(tmp_path):
    made = synthetic.rows()
    made += [{**r, "kernel": "paged_naive"} for r in made]  # one more kernel: the same steps
    data = plots.mix(run_of(tmp_path, made)).data
    assert list(data.step) == list(range(0, 501, 25))
    for line in data.itertuples():
        row = next(r for r in made if f",step={line.step})" in r["scenario"])
        assert (line.decode, line.extend, line.prefill) == (row["decodes"], row["extends"], row["prefills"])
        assert line.decode_tokens + line.extend_tokens + line.prefill_tokens + line.extend_and_prefill_tokens == row["tokens"]
        both = row["extends"] > 0 and row["prefills"] > 0
        assert (line.extend_and_prefill_tokens > 0) == both
        assert (line.extend_tokens > 0) == (row["extends"] > 0 and not both)


@pytest.mark.parametrize("scenario, expected", [
    ("paged batch=trace(a/b.csv,step=7,tokens=512) seed=1", ("b.csv, tokens=512", 7)), ("paged batch=trace(b.jsonl)", ("b.jsonl", 0)),
    ("paged batch=1q1s1k", None), ("paged xbatch=trace(a)", None)])
def test_trace_scenarios(scenario, expected):
    assert plots.trace_of(scenario) == expected


def test_nothing_to_show_is_a_sentence_not_an_empty_chart(tmp_path):
    checked = {p.name: p for p in plots.draw_all(run_of(tmp_path / "a", synthetic.rows(timing=False)), tmp_path / "a/plots")}
    assert "was timed" in checked["throughput"].message and checked["throughput"].figure is None
    assert "was timed" in checked["roofline"].message and checked["errors"].figure is not None
    empty = plots.draw_all(run_of(tmp_path / "b", []), tmp_path / "b/plots")
    assert all(p.message and p.figure is None for p in empty) and len(empty) == 4
    assert list((tmp_path / "b/plots").iterdir()) == []


def test_files_of_an_earlier_report_do_not_stay(tmp_path):
    (tmp_path / "plots").mkdir()
    for name in ("throughput.svg", "roofline.png", "roofline.csv"):
        (tmp_path / "plots" / name).write_text("old")
    plots.draw_all(run_of(tmp_path / "b", synthetic.rows(timing=False)), tmp_path / "plots")
    assert sorted({p.stem for p in (tmp_path / "plots").iterdir()}) == ["errors", "mix"]


def test_pictures_have_ink_and_repeat(tmp_path):
    run = run_of(tmp_path, synthetic.mixed_rows())
    for a in plots.draw_all(run, tmp_path / "plots"):
        image = matplotlib.image.imread(tmp_path / "plots" / f"{a.name}.png")[..., :3]
        assert (image.min(axis=2) < 0.6).mean() > 0.005, a.name
        pd.testing.assert_frame_equal(pd.read_csv(io.StringIO(a.csv)), a.data.reset_index(drop=True).replace("", float("nan")), check_dtype=False)
        if a.name == "errors":
            again = io.BytesIO()
            plots.errors(run).figure.savefig(again, format="svg", dpi=200, metadata={"Date": None})
            assert again.getvalue() == a.svg  # the same data, the same bytes: reports can be compared
