#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The support table: what counts as seen, what does not, and that SUPPORT.md and SEED_COVERAGE.md are what suites and runs give.

    /usr/bin/python3 -m pytest scripts/test_support_table.py
"""
import json
import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import support_table  # noqa: E402

DECODE, MIXED, RANKS = ("step h=4/2 d=64 window=3 batch=3q1s40 seed=1", "step h=4/2 d=32 budget=16 batch=1q1s9_1q5s90_1q7 seed=2",
                        "step h=4/2 d=64 ranks=2 batch=3q1s40 seed=3")
LINES = {"steps": [DECODE, MIXED, RANKS], "walks": [DECODE.replace("seed=1", "seed=4")], "ranks": [], "ranks_gpu": []}


def run(root: pathlib.Path, name: str, rows: list[tuple], command: str = "assay check steps", **facts: str) -> None:
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"command": command.split(), "start": "2026-01-02T03:04:05Z", "commit": "0123456789", **facts}))
    text = ",".join(support_table.COLUMNS) + "\n" + "".join(",".join(row) + "\n" for row in rows)
    (folder / "rows.csv").write_text(text)


def cells(root: pathlib.Path) -> dict:
    return support_table.cells(LINES, support_table.records(root))


def test_lines_are_sorted_by_what_they_have():
    line = support_table.Line(MIXED)
    assert line.parts() == {"decode", "extend", "prefill"} and line.heads() == (4, 2) and line.dims() == (32, 32)
    holding = {name for name, holds in support_table.FEATURES if holds(line)}
    assert holding == {"two or three of them in one batch", "context in several chunks", "heads of fewer than 64 dimensions"}
    latent = support_table.Line("step h=8/1 d=576/512 kv=fp8_e4m3:tensor layout=mla sources=2 threshold=4 batch=2q4s1k_1q0s9 seed=5")
    assert {name for name, holds in support_table.FEATURES if holds(latent)} == {
        "decodes of several rows (drafts of a chain)", "fp8 cache", "latent cache, fewer than 16 heads", "Q, or K, in two tensors"}


def test_only_recorded_lines_of_todays_suites_count(tmp_path):
    run(tmp_path, "steps", [(DECODE, "step_aiter_fa_gpu", "./x.so", "NVIDIA H200", "passed", ""),
                            (MIXED, "step_aiter_fa_gpu", "./x.so", "NVIDIA H200", "unsupported", ""),
                            (DECODE, "step_aiter_fa_gpu(decode=paged@x)", "./x.so", "NVIDIA H200", "passed", ""),
                            ("step h=2 d=64 batch=1q1s9 seed=9", "step_aiter_fa_gpu", "./x.so", "NVIDIA H200", "passed", ""),
                            (MIXED, "step_aiter_fa_cpu", "cpu", "a cpu", "wrong", "")])
    found = cells(tmp_path)
    assert set(found) == {("aiter_fa", "decodes alone, one row each", "H200"), ("aiter_fa", "window", "H200"),
                          *(("aiter_fa", name, "CPU") for name in ("two or three of them in one batch", "context in several chunks",
                                                                   "heads of fewer than 64 dimensions"))}
    assert support_table.cell_text(found["aiter_fa", "window", "H200"]) == "1: seed=1"
    assert support_table.cell_text(found["aiter_fa", "context in several chunks", "CPU"]) == "**1 not passed: seed=2**"
    text = support_table.table(LINES, support_table.records(tmp_path), {"aiter_fa"})
    assert f"| window |  | 1: seed=1 | build only | `{DECODE}` |" in text and "emulator or H100 or 2 GPUs or 4 GPUs" in text
    assert "## `step_aiter_fa_*`" in text and "| `results/steps` | 0123456 | 2026-01-02 | 2 |" in text


def test_ranks_have_a_device_each_unless_they_took_turns(tmp_path):
    row = (RANKS, "step_ixformer_dcp_gpu", "cuda", "NVIDIA H100 80GB HBM3", "passed", "")
    run(tmp_path, "turns", [row], ranks="host")
    assert {key[2] for key in cells(tmp_path)} == {"H100"}
    run(tmp_path, "devices", [row])
    assert {key[2] for key in cells(tmp_path)} == {"H100", "2 GPUs"}


def test_walks_and_records_in_words(tmp_path):
    run(tmp_path, "walks", [(LINES["walks"][0], "step_sglang_fa_gpu", "emu32", "emulator", "passed", "")], "assay check walks --walk 20")
    (tmp_path / "ranks.txt").write_text(f"# step_ixformer_dcp_gpu on one H200 (2026-01-02; abc1234 and more)\n{RANKS}: passed, fine\n")
    found = cells(tmp_path)
    assert support_table.cell_text(found["sglang_fa", support_table.REPLAYS, "emulator"]) == "1: walks seed=4"
    assert ("ixformer_dcp", support_table.RANKS, "H200") in found and not any(key[1] == "window" for key in found)


def test_a_record_keeps_what_is_read(tmp_path):
    run(tmp_path, "a", [(DECODE, "step_unified_cpu", "cpu", "x", "passed", ""), (MIXED, "step_unified_cpu", "cpu", "x", "unsupported", "")])
    run(tmp_path, "b", [(MIXED, "step_unified_gpu", "emu32", "x", "passed", "")])
    assert support_table.main(["none", "--record", str(tmp_path / "kept/steps"), str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    found = cells(tmp_path / "kept")
    assert {key[2] for key in found} == {"CPU", "emulator"} and ("unified", "context in several chunks", "CPU") not in found


COVERAGE = """
| seed | rows | yes | part | no | not assay's |
| 000 aiter_fa | 2 | 1 | 1 | 0 | 0 |
| all | 2 | 1 (50 %) | 1 (50 %) | 0 (0 %) | 0 (0 %) |
| 0.01 | 1 | this | steps seed=1, 3 to 5 (cpu) | yes |
| 0.02 | 2 | that | walks seed=1 | part |
"""


@pytest.mark.parametrize("old, new, said", [("", "", []), ("steps seed=1,", "steps seed=2,", ["row 0.01: steps has no seed=2"]),
                                            ("3 to 5", "3 to 6", ["row 0.01: steps has no seed=6"]),
                                            ("that |", "that **T** the other |", ["row 0.02: a seed is wrong, and no fault"]),
                                            ("that | walks", "that **T** | faults `as_that`, `as_this`; walks", ["row 0.02: nothing is planted as as_this"]),
                                            ("part |\n", "no |\n", ["counts of 000", "counts of all"]),
                                            ("part |\n", "not assay's |\n", ["counts of 000", "counts of all"])])
def test_what_the_coverage_says_is_held_against_the_suites(tmp_path, old, new, said):
    (tmp_path / "steps.suite").write_text("\n".join(f"step batch=1q1s9 seed={n}" for n in (1, 3, 5)))
    (tmp_path / "walks.suite").write_text("step batch=1q1s9 seed=1\n")
    faults = support_table.coverage_faults(COVERAGE.replace(old, new) if old else COVERAGE, tmp_path, {"as_that"})
    assert len(faults) == len(said) and all(any(f.startswith(s) for f in faults) for s in said), faults


def test_the_files_are_what_suites_and_runs_give(capsys):
    assay = pathlib.Path(os.environ.get("ASSAY_BINARY_DIR", "build")) / "assay"
    if not assay.exists():
        pytest.skip(f"{assay} is not built")
    assert support_table.main([str(assay), "--check"]) == 0, capsys.readouterr().out
