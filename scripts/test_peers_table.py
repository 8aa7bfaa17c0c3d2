#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of ours beside peers: which columns, ratios by mode, torch's file, folders without rows.

    /usr/bin/python3 -m pytest scripts/test_peers_table.py
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import peers_table  # noqa: E402

COLUMNS = "scenario,kernel,outcome,cache,launch,time_us,tflops,limit_percent"


def folder_of(path: pathlib.Path, name: str, *lines: str) -> None:
    (path / name).mkdir()
    (path / name / "rows.csv").write_text("\n".join([COLUMNS, *lines]) + "\n")


def test_decode_has_a_ratio_for_every_mode_and_the_line_of_codes_joins(tmp_path):
    line = "paged kv=fp8_e4m3:host batch=1q1s8k seed=22"
    folder_of(tmp_path, "peers_decode", f"{line},paged_auto_sm90,passed,cold,eager,10,1,50", f"{line},paged_auto_sm90,passed,dirty,eager,12,1,40",
              f"{line},paged_auto_sm90,passed,hot,graph,8,1,60", f"{line},paged_xqa_fp8_16,untrusted,cold,eager,15,1,30",
              f"{line},paged_xqa_fp8_16,passed,hot,graph,6,1,30", f"{line},paged_fa3,unsupported,,,,,")
    codes = line.replace("kv=fp8_e4m3:host", "q=fp8_e4m3:request_head kv=fp8_e4m3:request_head")
    folder_of(tmp_path, "peers_decode_q", f"{codes},paged_fa3,passed,cold,eager,14,1,30", f"{codes},paged_fa3,passed,dirty,eager,18,1,30")
    lines = peers_table.table(tmp_path).splitlines()
    assert lines[3:] == ["", "Not in this run: FlashMLA, torch."]
    cells = [cell.strip() for cell in lines[2].split("|")[1:-1]]
    assert cells == ["paged kv=fp8_e4m3:host batch=1q1s8k", "10.0 / 12.0 / 8.0", "14.0 / 18.0 /", "15.0 (!) /  / 6.0", "",
                     "1.40 / 1.50 / 0.75", "50 %"]


def test_prefill_and_torch(tmp_path):
    line = "prefill h=16 batch=16q1k seed=21"
    folder_of(tmp_path, "peers_prefill", f"{line},prefill_auto_sm90,passed,dirty,eager,100,600,50", f"{line},prefill_fa3,passed,dirty,eager,90,660,50")
    (tmp_path / "torch_16_16_128_128.txt").write_text(
        "torch 2.11, GPU, prefill_auto_sm90, heads 16/16 of 128, median\nformat mask\n"
        "bf16   causal      16   1024      0.10     600000.0     500000.0          0.0   1.20   1.0e-02\n")
    codes = "prefill h=8 q=fp8_e4m3:request_head kv=fp8_e4m3:request_head batch=16q1k seed=21"
    folder_of(tmp_path, "peers_prefill_codes", f"{codes},prefill_auto_sm90,passed,dirty,eager,100,500,50")
    folder_of(tmp_path, "peers_paged_prefill", "paged batch=4q4k seed=21,paged_auto_sm90,passed,dirty,eager,100,400,40")
    text = peers_table.table(tmp_path)
    assert "| prefill h=8 q=fp8_e4m3:request_head kv=fp8_e4m3:request_head batch=16q1k | 500 |  |  | 50 % |" in text
    assert "| paged batch=4q4k | 400 |  |  | 40 % |" in text
    assert "| prefill h=16 batch=16q1k | 600 | 660 | 0.90 | 50 % |" in text
    assert "| 16/16 of 128 | causal | 16 x 1024 | 600 | 500 |  | 1.20 |" in text


def test_torch_alone_names_the_peers_that_are_missing(tmp_path):
    (tmp_path / "torch_16_16_128_128.txt").write_text(
        "torch 2.11, GPU, prefill_auto_sm90, heads 16/16 of 128, median\n"
        "bf16   causal      16   1024      0.10     600000.0     500000.0          0.0   1.20   1.0e-02\n")
    text = peers_table.table(tmp_path)
    assert "| 16/16 of 128 | causal | 16 x 1024 | 600 | 500 |  | 1.20 |" in text
    assert text.splitlines()[-1] == "Not in this run: FlashAttention-3, XQA, FlashMLA."


def test_a_folder_without_rows_is_said(tmp_path, capsys):
    assert peers_table.main([str(tmp_path)]) == 2
    assert "holds no rows of peers" in capsys.readouterr().err
    assert peers_table.main([]) == 2
