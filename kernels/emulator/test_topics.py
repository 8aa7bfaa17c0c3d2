# SPDX-License-Identifier: Apache-2.0
"""topics.py must select the same cases everywhere and notice kernels that nothing ran: against a stand-in for assay that answers as told, in this
process (a hundred of its own took a minute).
"""
import csv
import json
import pathlib
import subprocess
import sys
import types

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import topics  # noqa: E402


def stand_in(told: dict, words: list[str]) -> str:
    """What `assay WORDS` prints; leaves the files of a run."""
    if words[0] == "list":
        return "\n".join(line for line in told["suites"].get(words[1], told["suites"]["b"]) if "--largest" not in words or "big" not in line)
    out = pathlib.Path(words[words.index("--out") + 1])
    out.mkdir(parents=True)
    with open(out / "rows.csv", "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["scenario", "kernel", "outcome", "reason"])
        for line in pathlib.Path(words[1]).read_text().splitlines():
            rows.writerows([line, kernel, outcome, "why"] for kernel, (op, outcome) in told["kernels"].items() if line.split()[0] == op)
    (out / "run.json").write_text(json.dumps({"backends": [{"kernels": [{"name": k, "op": o} for k, (o, _) in told["kernels"].items()]}]}))
    return ""


SUITES = {"a": [f"paged n={i}" for i in range(10)] + ["paged big=1", "paged big=2"], "b": ["prefill n=1", "paged n=1", "prefill n=2"]}


@pytest.fixture
def run(monkeypatch, capsys):
    def with_kernels(kernels, *options, topics_asked=("a", "b")):
        told = {"suites": SUITES, "kernels": kernels}
        answer = lambda command, **_: subprocess.CompletedProcess(command, 0, stand_in(told, command[1:]), "")  # noqa: E731
        monkeypatch.setattr(topics, "subprocess", types.SimpleNamespace(run=answer))
        monkeypatch.setattr(sys, "argv", ["topics.py", "assay", "64", *(["--topic", *topics_asked] if topics_asked else []), *options])
        status = topics.main()
        shown = capsys.readouterr()
        return subprocess.CompletedProcess([], status, shown.out, shown.err)

    return with_kernels


def test_every_nth_of_each_op_and_never_none():
    lines = SUITES["a"][:10] + ["prefill n=1"]
    assert topics.select("a", lines, 4, 1) == ["paged n=1", "paged n=5", "paged n=9", "prefill n=1"]
    assert topics.select("a", lines, 1, 0) == lines
    union = {line for turn in range(4) for line in topics.select("a", lines, 4, turn)}
    assert union == set(lines)
    ranks = [f"step ranks={n}" for n in range(2, 8)]
    assert topics.select("a", ["step"] * 3 + ranks, 4, 5) == ["step"] * 3 + ranks[1::4]
    assert topics.select("a", ["step n=1", "step n=2"] + ranks, 11, 1) == ["step n=2"] + ranks[-2:]


def test_rare_values_are_shown_first_and_by_turns():
    pools = {"a": [f"paged mask=full d=64 batch={i}q1 seed={i}" for i in range(9)] + ["paged mask=tree d=64 seed=1", "paged mask=tree d=80 cap=3"],
             "steps_smoke": ["step never=asked"], "b": ["prefill d=64", "paged mask=full cap=4"]}
    order = [("a", pools["a"][10]), ("a", pools["a"][0]), ("b", "prefill d=64"), ("b", "paged mask=full cap=4")]
    assert topics.spread(pools, 9, 0) == set(order[0::2])
    assert topics.spread(pools, 9, 1) == set(order[1::2]), "and no line that shows nothing new"
    assert topics.spread(pools, 1, 0) == set(order[:1])
    assert topics.spread(pools, 0, 0) == set()


def test_ops_of_few_lines_are_taken_more_often():
    lines = [f"paged n={i}" for i in range(300)] + [f"prefill n={i}" for i in range(20)] + ["merge n=0", "merge n=1"]
    chosen = topics.select("a", lines, 67, 1, 3)
    assert chosen == [f"paged n={i}" for i in (1, 68, 135, 202, 269)] + ["prefill n=1", "prefill n=7", "prefill n=13", "prefill n=19", "merge n=0", "merge n=1"]
    assert topics.select("a", lines, 67, 1) == chosen[:5] + ["prefill n=1", "merge n=1"]


def test_phases_are_taken_whole_and_their_edges_less_often():
    lines = [f"step n={i}" for i in range(8)]
    assert topics.select("steps_smoke", lines, 4, 1) == lines
    assert topics.select("steps", lines, 2, 1) == ["step n=1", "step n=5"]
    assert topics.select("steps", lines, 1, 0) == lines


def test_counts_per_kernel_and_topic(run):
    done = run({"p_gpu": ("paged", "passed"), "f_gpu": ("prefill", "passed")}, "--every", "100", "--spread", "2")
    table = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines() if line}
    assert table["a"] == ["2", "0", "10"] and table["b"] == ["2", "0", "1"], "the first of each op; of the four with rare values the third, the first is there already"
    done = run({"p_gpu": ("paged", "passed"), "f_gpu": ("prefill", "passed")}, "--largest", "1e6", "--every", "3")
    assert done.returncode == 0, done.stderr
    table = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines() if line}
    assert table["a"] == ["4", "2", "6"], "selected, too large, other turns"
    assert table["p_gpu"] == ["4", "1"]
    assert table["f_gpu"] == ["-", "1"]


@pytest.mark.parametrize("outcome", ["wrong", "crashed", "timed_out", "untrusted", "invalid"])
def test_a_row_that_did_not_pass_fails(run, outcome):
    done = run({"p_gpu": ("paged", "passed"), "q_gpu": ("paged", outcome)})
    assert done.returncode == 1
    assert f"{outcome}: q_gpu: why" in done.stderr


def test_no_kernel_may_be_untrusted(run):
    done = run({"p_gpu": ("paged", "passed"), "paged_mma_gpu": ("paged", "untrusted")})
    assert done.returncode == 1
    assert "untrusted: paged_mma_gpu: why" in done.stderr


def test_a_kernel_that_refuses_a_topic_fails(run):
    done = run({"p_gpu": ("paged", "passed"), "q_gpu": ("paged", "unsupported")})
    assert done.returncode == 1
    assert "q_gpu passed 0 of 12 cases of a, wanted 2" in done.stderr


def test_a_kernel_whose_op_no_topic_holds_fails(run):
    kernels = {"p_gpu": ("paged", "passed"), "n_gpu": ("new_op", "passed")}
    done = run(kernels, topics_asked=())
    assert done.returncode == 1
    assert done.stderr.splitlines() == ["n_gpu: no topic holds a case of new_op"]
    assert run(kernels).returncode == 0, "two topics say nothing about all"
