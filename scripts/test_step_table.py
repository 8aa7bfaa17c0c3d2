#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of steps and their stages: sums, ratios, what has no rate, and files without steps.

    /usr/bin/python3 -m pytest scripts/test_step_table.py
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import step_table  # noqa: E402

COLUMNS = "scenario,kernel,outcome,op,cache,launch,time_us,plan_us,tokens_per_s,tflops,gbytes_per_s,limit_percent"


def folder_of(path: pathlib.Path, *lines: str) -> pathlib.Path:
    (path / "rows.csv").write_text("\n".join([COLUMNS, *lines]) + "\n")
    return path


def row(kernel: str, us: float, launch: str = "eager", plan: str = "", tflops: str = "1.5") -> str:
    return f"step batch=2q1s9,{kernel},passed,step,hot,{launch},{us},{plan},1000,{tflops},20,50"


ROWS = [row("step_unified_gpu", 30, plan="7"), row("step_unified_gpu:write", 5, tflops=""), row("step_unified_gpu:attend", 20),
        row("step_aiter_fa_gpu(decode=paged@./x:y.so)", 60), row("step_aiter_fa_gpu(decode=paged@./x:y.so):decode", 48),
        row("step_unified_gpu", 24, "graph"), row("paged_gpu", 20).replace("step,hot", "paged,hot")]


def test_a_step_stands_beside_its_stages_and_one_call(tmp_path):
    lines = step_table.table(step_table.reading.load(folder_of(tmp_path, *ROWS)).rows).splitlines()
    blocks = [line for line in lines if line.startswith("step ")]
    assert blocks == ["step batch=2q1s9 [hot]", "step batch=2q1s9 [graph]"]
    whole = next(line for line in lines if "step_unified_gpu " in line).split()
    assert whole == ["step_unified_gpu", "30", "1000", "1.5", "20", "50", "7", "1.2", "1.5"]  # 30 / (5 + 20), 30 / 20
    other = next(line for line in lines if "step_aiter_fa_gpu" in line).split()
    assert other[0] == "step_aiter_fa_gpu(decode=paged@./x:y.so)" and other[-2:] == ["1.25", "3"]
    assert [line.split()[:3] for line in lines if " write " in line] == [["write", "5", "1000"]]
    assert lines[-1].split() == ["step_unified_gpu", "24", "1000", "1.5", "20", "50"]  # no stages, no call in this mode
    assert not any("paged_gpu" in line for line in lines)


def test_a_run_without_steps_is_no_table(tmp_path, capsys):
    folder_of(tmp_path, ROWS[-1])
    assert step_table.main([str(tmp_path)]) == 2
    assert "holds no timed step" in capsys.readouterr().err
    assert step_table.main([str(tmp_path / "none")]) == 2
    assert "no such folder" in capsys.readouterr().err


def test_the_command_writes_a_file(tmp_path):
    folder_of(tmp_path, *ROWS)
    assert step_table.main([str(tmp_path), "--out", str(tmp_path / "t.txt")]) == 0
    assert (tmp_path / "t.txt").read_text().startswith("step batch=2q1s9 [hot]\n")
