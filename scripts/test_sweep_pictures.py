#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The pictures of sweeps: what lines say, tokens of a draft tree, where the rule of cascades errs, and files without sweeps.

    /usr/bin/python3 -m pytest scripts/test_sweep_pictures.py
"""
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import sweep_pictures as sweep  # noqa: E402

COLUMNS = "scenario,kernel,outcome,op,cache,launch,time_us,plan_us,tokens_per_s,tflops,gbytes_per_s,limit_percent"


def row(scenario: str, us: float, kernel: str = "step_sglang_fa_gpu", cache: str = "hot", launch: str = "eager") -> str:
    return f"{scenario},{kernel},passed,step,{cache},{launch},{us},,1000,1,20,50"


def draft(branches: int, drafted: int, us: float) -> str:
    name = f" drafted={drafted}" if drafted else ""
    return row(f"step h=4/2 d=64 threshold=4 mask=tree positions=depth{name} batch=4q{branches}s100 seed=1", us)


ROWS = [draft(2, 0, 10), draft(2, 2, 30), draft(1, 0, 8), draft(1, 3, 8),
        row("step h=4/2 d=64 threshold=8 mask=tree batch=4q8s100 seed=1", 100),
        row("step h=4/2 d=64 threshold=8 mask=tree batch=4q8s100 seed=1", 90, "step_unified_gpu"),
        row("step h=4/2 d=64 threshold=8 mask=tree batch=4q8s100 seed=1", 5, "step_unified_gpu:attend"),
        row("step h=4/2 d=64 threshold=8 mask=tree batch=4q8s100 seed=1", 1, launch="graph"),
        row("step h=4/2 d=64 budget=1k batch=2q64s4k seed=1", 50), row("step h=4/2 d=64 budget=2k batch=2q64s4k seed=1", 40),
        row("step h=8/2 d=64 prefix=256 workers=1 batch=16q1s300p256 seed=1", 70, "step_ixformer_fa_gpu"),
        row("step h=8/2 d=64 prefix=256 workers=1 batch=16q1s300p256 seed=1", 45),  # of a pipeline without cascades
        row("step h=8/2 d=64 batch=16q1s300p256 seed=1", 50, "step_ixformer_fa_gpu"),
        row("step h=8/2 d=64 prefix=256 workers=1 batch=8q1s300p256 seed=1", 40, "step_ixformer_fa_gpu"),
        row("step h=8/2 d=64 batch=8q1s300p256 seed=1", 50, "step_ixformer_fa_gpu").replace(",passed,", ",noisy,"),
        row("step h=8/2 d=64 ranks=2 interleave=16 batch=8q1s4k seed=1", 50, "step_ixformer_dcp_gpu"),
        row("step h=8/2 d=64 ranks=2 interleave=16 batch=8q1s4k seed=1", 40, "step_ixformer_dcp_gpu:rank1"),
        row("step h=8/2 d=64 ranks=4 interleave=1k batch=8q1s4k seed=1", 30, "step_ixformer_dcp_gpu"),
        row('"step h=8/2 batch=trace(small.csv,step=10,tokens=64,seqs=8) seed=1"', 50),
        row('"step h=8/2 threshold=4 batch=trace(small.csv,step=20,tokens=64,seqs=8,draft=3) seed=1"', 70),
        row("paged h=8/2 d=64 batch=8q1s300 seed=1", 50).replace(",step,hot", ",paged,hot")]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "rows.csv").write_text("\n".join([COLUMNS, *ROWS]) + "\n")
    return tmp_path


def rows_of(folder):
    return sweep.timed(sweep.reading.load(folder).rows, "hot")


def test_a_line_says_its_sweep():
    found = sweep.facts("step h=16/4 d=64 budget=64k mask=tree positions=depth drafted=2 batch=4q2s1k seed=1")
    assert (found["tree"], found["depth"], found["drafted"], found["budget"]) == (True, True, 2, 65536)
    assert (found["requests"], found["rows"], found["keys"], found["heads"]) == (4, 2, 1024, (16, 4))
    assert sweep.facts("step batch=4q256s17k")["budget"] == 32768  # what lines leave out
    assert sweep.facts("step batch=2q1s40_1q9s30") is None and sweep.facts("paged batch=2q1s40") is None


def test_steps_of_traces_and_turns_of_ranks(folder):
    mixes = sweep.of_traces(sweep.whole_steps(sweep.reading.load(folder).rows, "hot")).set_index("step")
    assert list(mixes.drafts) == [0, 3] and mixes.us[20] == 70 and set(mixes.trace) == {"small.csv"}
    ranks = rows_of(folder)
    ranks = ranks[ranks.turns.notna()].set_index("ranks")
    assert ranks.turns[4] == 1024 and ranks.us[2] == 50  # the group's, not a rank's


def test_tokens_of_a_tree_against_the_time_of_all_its_steps(folder):
    assert sweep.expected_tokens(0.5, 1, 3) == 1 + 0.5 + 0.25 + 0.125
    assert sweep.expected_tokens(0.5, 2, 1) == 1.75  # a level of two drafts: 1 - 0.25
    table = sweep.draft_table(rows_of(folder), [0.5]).set_index("branches")
    # Top-k 2: four draft steps of 10, 20 (between 10 and 30), 30, 30 and the faster verification.
    assert table.tokens_per_s[2] == pytest.approx(4 * (1 + 0.75 + 0.75**2 + 0.75**3 + 0.75**4) / 180e-6)
    assert table.tokens_per_s[1] == pytest.approx(4 * (2 - 0.5**8) / (90 + 8 * 8) * 1e6)


def test_the_rule_of_cascades_is_held_against_both_times(folder):
    assert sweep.rule_says(256, 8, (8, 2), 1) and sweep.rule_says(256, 8, (2, 2), 132)
    assert not sweep.rule_says(255, 8, (2, 2), 1) and not sweep.rule_says(256, 7, (2, 2), 1)
    assert not sweep.rule_says(256, 8, (8, 2), 132)  # one wave of two tiles each against one wave
    table = sweep.cascade_table(rows_of(folder), 1).set_index("requests")
    assert table.says.all() and table.loss[16] == pytest.approx(0.4) and table.loss[8] == 0
    other = sweep.cascade_table(rows_of(folder), 132).set_index("requests")
    assert not other.says.any() and other.loss[16] == 0 and other.loss[8] == pytest.approx(0.25)


def test_the_command_draws_what_there_is(folder, tmp_path, capsys):
    assert sweep.main([str(folder), str(tmp_path / "out"), "--accept", "0.5,0.9"]) == 0
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["cascade.png", "chunks.png", "drafts.png", "mixes.png", "ranks.png"]
    assert "1 of 15 times are noisy" in capsys.readouterr().err
    assert sweep.main([str(folder), str(tmp_path / "none"), "--cache", "cold"]) == 2
    assert "holds no sweep timed with a cold cache" in capsys.readouterr().err
    assert sweep.main([str(folder), str(tmp_path / "none"), "--accept", "1.5"]) == 2
    assert "expected chances from 0 to below 1" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()
