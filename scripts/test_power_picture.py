#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The picture of assay power: what its lines show, and what is said of files that are no record.

    /usr/bin/python3 -m pytest scripts/test_power_picture.py
"""
import pathlib
import sys

import numpy as np
import pandas as pd

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import power_picture  # noqa: E402

HEADER = "format,keys,fault,draw,D,P,R,LSE,aggregates,ours,incidence,vLLM,FlashMLA"


def record(folder, *lines) -> str:
    path = folder / "power.csv"
    path.write_text("\n".join(["# assay power --draws 4 --seed 1 # commit none", HEADER, *lines]) + "\n")
    return str(path)


ROWS = [f"bf16,{keys},key_weight,{draw},{size},0.5,0.25,0.25,,{size / 8},0.125,{'' if draw else 8},-"
        for keys in (128, 1024) for draw, size in enumerate((1, 2, 2, 4))]


def test_a_line_is_the_size_that_half_of_the_draws_do_not_exceed(tmp_path):
    rows = power_picture.load(record(tmp_path, *ROWS))
    assert list(power_picture.curve(rows, "D", 0.5)) == [2, 2]
    assert list(power_picture.curve(rows, "D", 0.95)) == [4, 4]
    assert np.isnan(power_picture.curve(rows, "vLLM", 0.5)).all()  # seen in one draw of four
    assert np.isnan(power_picture.curve(rows, "FlashMLA", 0.5)).all()  # not asked
    assert np.isnan(power_picture.shares(pd.Series(["x", "1"]), 0.5))  # rejects the right kernel


def test_the_picture_has_a_panel_for_each_fault_and_format(tmp_path):
    rows = power_picture.load(record(tmp_path, *ROWS, *(r.replace("bf16", "fp16").replace("key_weight", "mask_shift") for r in ROWS)))
    figure = power_picture.draw(rows)
    titles = [axes.get_title(loc="left") or axes.get_title() for axes in figure.axes if axes.axison]
    assert sorted(titles) == ["newest keys unseen, fp16", "one key's weight, bf16"]
    ours = next(line for line in figure.axes[0].get_lines() if line.get_label() == "ours, random inputs")
    assert list(ours.get_xdata()) == [128, 1024] and list(ours.get_ydata()) == [0.25, 0.25]


def test_what_was_not_reached_is_marked(tmp_path):
    holes = ["bf16,4096,key_weight,0,?,?,?,?,?,?,0.125,?,-", "bf16,1048576,key_weight,0,?,?,?,?,?,?,?,?,-"]
    known = "bf16,65536,key_weight,0,1,1,1,1,1,1,?,1,-"
    rows = power_picture.load(record(tmp_path, *ROWS, *holes, known))
    assert power_picture.not_reached(rows, "ours") == [4096, 1048576]
    assert power_picture.not_reached(rows, "incidence") == [65536, 1048576]
    assert np.isnan(power_picture.curve(rows, "D", 0.5)[4096])
    marks = [t for t in power_picture.draw(rows).axes[0].texts if t.get_text() == "?"]
    assert sorted(t.xy[0] for t in marks) == [4096, 65536, 1048576]


def test_bad_files_are_named(tmp_path, capsys):
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    assert power_picture.main([str(tmp_path / "other.csv"), str(tmp_path / "x.png")]) == 2
    assert "no column format" in capsys.readouterr().err
    assert power_picture.main([str(tmp_path / "none.csv"), str(tmp_path / "x.png")]) == 2
    assert power_picture.main([record(tmp_path), str(tmp_path / "x.png")]) == 2
    assert "holds no draw" in capsys.readouterr().err


def test_the_command_writes_the_picture(tmp_path):
    assert power_picture.main([record(tmp_path, *ROWS), str(tmp_path / "x.png")]) == 0
    assert (tmp_path / "x.png").stat().st_size > 10_000
