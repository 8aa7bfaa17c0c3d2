# SPDX-License-Identifier: Apache-2.0
"""The draw of slow work: every group has its turn, what is left out is what its groups name and is said, and what has changed is never left out."""
import collections
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import draw  # noqa: E402
import summarize_tests  # noqa: E402

NAMES = [group for groups in draw.DRAWS.values() for group in groups]
BUILD = pathlib.Path(os.environ.get("ASSAY_BINARY_DIR", draw.ROOT / "build"))


@pytest.fixture(scope="module")
def tests():
    """What ctest knows of this build."""
    done = subprocess.run(["ctest", "--test-dir", BUILD, "--show-only=json-v1"], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip("no build with tests")
    return [test["name"] for test in json.loads(done.stdout)["tests"]]


def repository(root, files):
    subprocess.run(["git", "init", "-q", root], check=True)
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    subprocess.run(["git", "-C", root, "add", "."], check=True)


def file_of(tmp_path, *groups):
    file = tmp_path / "draw.txt"
    file.write_text(" ".join(groups) + "\n")
    return file


def test_a_test_is_in_one_group_of_a_draw_at_most(tests):
    assert len(set(NAMES)) == len(NAMES)
    for test in tests:
        draw.groups_of(test)  # an error where it is in two


def test_every_name_is_that_of_a_test(tests):
    # A test that is called otherwise now would never be drawn again. What this build does not have stands for nothing.
    if any(test.endswith("_NOT_BUILT") for test in tests):
        pytest.skip("a part of the tests is not built here")
    out = draw.left_out(BUILD / "draw.txt")
    absent = tuple(f"{module}[.]" for group in out for module in draw.MODULES.get(group, []))
    absent += (".*",) if absent else ()  # of a module that may be one of these
    for group in NAMES:
        for pattern in draw.patterns_of(group)[1:]:
            if group not in out and not pattern.startswith(absent):
                assert any(re.match(pattern, test) for test in tests), f"no test begins {pattern} ({group})"
    assert {group for test in tests for group in draw.groups_of(test)} == set(NAMES)  # of each something to run, or to name


def test_ctest_leaves_out_what_is_said(tests, tmp_path):
    for mine in ([], ["lanes64", "faults"], NAMES):
        regex = draw.exclude(file_of(tmp_path, *mine))
        done = subprocess.run(["ctest", "--test-dir", BUILD, "-N", *(["-E", regex] if regex else [])], capture_output=True, text=True, check=True)
        run = int(re.search(r"Total Tests: (\d+)", done.stdout)[1])
        assert len(tests) - run == sum(not set(draw.groups_of(test)) <= set(mine) for test in tests)
        assert (run == len(tests)) == (mine == NAMES)


def test_only_slow_tests_are_drawn():
    for group, patterns in draw.SLOW.items():
        assert all(seconds >= draw.LEAST for seconds in patterns.values()), group


def test_every_group_is_drawn_as_often():
    for name, groups in draw.DRAWS.items():
        count = collections.Counter(draw.pick(name, f"{tree:040x}") for tree in range(8000))
        assert set(count) == set(groups)
        assert max(count.values()) < 1.15 * 8000 / len(groups) and min(count.values()) > 0.85 * 8000 / len(groups), count
    # ... and not together: each meets every group of the others.
    met = {tuple(draw.pick(name, f"{tree:040x}") for name in draw.DRAWS) for tree in range(1000)}
    assert len(met) == len(draw.EMULATED) * len(draw.SLOW) * len(draw.MODULES)


def test_a_tree_draws_the_same_again_and_all_is_all():
    tree = "0123456789abcdef0123456789abcdef01234567"
    mine = draw.drawn(tree)
    assert mine == draw.drawn(tree) and all(any(group in mine for group in groups) for groups in draw.DRAWS.values())
    assert draw.drawn("all") == NAMES
    with pytest.raises(SystemExit, match="neither all, tree nor"):
        draw.drawn("lanes32")


def test_what_is_left_out_is_the_rest(tmp_path):
    assert draw.left_out(file_of(tmp_path, "sm90", "faults")) == [g for g in NAMES if g not in ("sm90", "faults")]
    assert draw.left_out(file_of(tmp_path, *NAMES)) == [] and draw.exclude(file_of(tmp_path, *NAMES)) == ""
    assert draw.left_out(tmp_path / "none") == []
    with pytest.raises(SystemExit, match="lanes48, which no draw knows"):
        draw.left_out(file_of(tmp_path, "lanes48"))


def test_what_has_changed_is_taken(tmp_path):
    kernel, hopper, planted = "kernels/portable/split.cu", "kernels/sm90/mla.cpp", "kernels/emulator/faults/edits/portable/split.cu.edit"
    repository(tmp_path, {kernel: "a", hopper: "b", planted: "c", "harness/run/run.cpp": "g", "harness/explain/stages.cpp": "k", "kernels/emulator/block.hpp": "j", "reference/formats_test.cpp": "h", "harness/check/judge.cpp": "i", "kernels/portable/split_test.cpp": "d", "kernels/portable/README.md": "e", "scripts/setup": "f"})
    assert draw.changed(tmp_path) == list(draw.CODE)  # never seen
    (tmp_path / "results").mkdir()
    (tmp_path / draw.NOTED).write_text("".join(f"{group} {draw.code_of(group, tmp_path)}\n" for group in draw.CODE))
    assert draw.changed(tmp_path) == []
    for name, groups in [("kernels/portable/split_test.cpp", []), ("kernels/portable/README.md", []), (hopper, ["sm90"]), ("scripts/setup", ["machine"]),
                         (kernel, ["lanes32", "lanes64", "planted", "sm90"]), ("harness/run/run.cpp", ["running"]), ("harness/explain/stages.cpp", ["engines", "steps", "scores", "faults"]), ("kernels/emulator/block.hpp", ["emulator", "lanes32", "lanes64", "planted", "sm90"]),
                         ("reference/formats_test.cpp", ["numbers"])]:
        before = (tmp_path / name).read_text()
        (tmp_path / name).write_text("x")
        assert sorted(draw.changed(tmp_path)) == sorted(groups), name
        for tree in ("1234567", "7654321", "abcdef0"):
            for draw_of, all_groups in draw.DRAWS.items():
                new, mine = set(groups) & set(all_groups), set(draw.drawn(tree, tmp_path)) & set(all_groups)
                if "emulator" in groups and draw_of == "emulated":
                    assert mine == set(draw.EMULATED)
                else:
                    assert mine == ({draw.pick(draw_of, tree, new)} if draw_of == "emulated" else new | {draw.pick(draw_of, tree)})
                    assert not new or mine & new
        (tmp_path / name).write_text(before)


def test_outside_of_a_repository_all_that_may_have_changed_is_taken(tmp_path):
    assert set(draw.CODE) - {"emulator"} <= set(draw.drawn("tree", tmp_path))


def test_the_last_lines_name_what_is_left_out(tmp_path, capsys):
    listed = tmp_path / "listed.json"
    listed.write_text(json.dumps({"tests": [{"name": name} for name in [
        "program.emulator.emu64", "lanes64.program.emu64_test", "emu32.Collectives.Work", "explain.ExplainEngines.SayHow", "explain.ExplainEngines.SayWhat", "base.Files.Are"]]}))
    repository(tmp_path, {name: "a" for name in ["kernels/sm90/mla.cpp", "kernels/emulator/x.cpp", "harness/run/run.cpp", "harness/explain/x.cpp", "harness/check/x.cpp", "reference/x.cpp", "scripts/setup"]})
    (tmp_path / "results").mkdir()
    (tmp_path / draw.NOTED).write_text("".join(f"{group} {draw.code_of(group, tmp_path) if group != 'sm90' else 'other'}\n" for group in draw.CODE))
    lines = draw.say_left_out(file_of(tmp_path, *(g for g in NAMES if g not in ("lanes64", "engines"))), listed, tmp_path)
    assert lines[:2] == ["left out 1 tests and 1 programs of tests: lanes64", "left out 2 tests: engines"] and "scripts/test --full" in lines[2]
    assert len(lines) == 4 and lines[3].startswith("changed since they passed whole") and lines[3].endswith(": sm90")
    (tmp_path / "left_out.txt").write_text("\n".join(lines) + "\n")
    junit = tmp_path / "default.xml"
    junit.write_text('<testsuite><testcase name="base.Files.Are" status="run"/></testsuite>')
    assert summarize_tests.main(["--left-out", str(tmp_path / "left_out.txt"), str(junit), "--", "tests passed"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[1:5] == lines and said[-1] == "tests: 1 passed, 0 failed, 0 skipped, 3 left out with 1 programs of tests"
