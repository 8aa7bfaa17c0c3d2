# SPDX-License-Identifier: Apache-2.0
"""plant.py: every edit of the tree fits its file once, keeps its line numbers, and one that does not fit is refused with the place."""
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
KERNELS = HERE.parents[1]
SOURCE = """#pragma once
int scale(int x) {
  const int twice = 2 * x;  // of the argument
  barrier();
  if (twice > 9) return 9;
  barrier();
  return twice;
}
"""


def run(folder, source=SOURCE, **edits):
    """Status, messages and the edited copy of k.hpp, whose edits (and those of other files) are given."""
    (folder / "src" / "portable").mkdir(parents=True)
    (folder / "edits" / "portable").mkdir(parents=True)
    (folder / "src" / "portable" / "k.hpp").write_text(source)
    for name, text in edits.items():
        (folder / "edits" / "portable" / f"{name}.hpp.edit").write_text(text)
    done = subprocess.run([sys.executable, HERE / "plant.py", folder / "src", folder / "out", "--edits", folder / "edits"],
                          capture_output=True, text=True)
    copy = folder / "out" / "kernels" / "portable" / "k.hpp"
    return done.returncode, done.stderr, copy.read_text() if copy.exists() else None


def test_all_edits_of_the_tree_fit(tmp_path):
    done = subprocess.run([sys.executable, HERE / "plant.py", KERNELS, tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    names = (tmp_path / "kernels" / "emulator" / "faults" / "fault_list.hpp").read_text()
    assert names.count("{Fault::") >= 70
    for edit in (HERE / "edits").glob("*/*.edit"):
        source = KERNELS / edit.parent.name / edit.stem
        planted, shipped = (tmp_path / "kernels" / edit.parent.name / edit.stem).read_text(), source.read_text()
        # Two lines in front; behind them every line where it was.
        assert len(planted.splitlines()) == len(shipped.splitlines()) + 2, edit
        assert f'#line 1 "{source}"' in planted.splitlines()[1]
        assert "fault(" not in shipped


def test_statements_expressions_and_insertions(tmp_path):
    status, why, copy = run(tmp_path, k="""
fault no_barrier in kernel_gpu: none
- barrier();
  if (twice
fault thrice in kernel_gpu: three
  twice =
- 2 * x
+ 3 * x
  ;
fault adds in kernel_gpu: two changes
  return
- twice
+ twice + 1
  ;
@@
  if (
- twice > 9
+ twice < 9
  ) return 9;
""")
    assert status == 0, why
    f = "::assay_gpu::fault(::assay_gpu::Fault::"
    assert f"const int twice = ({f}thrice) ? (3 * x) : (2 * x));  // of the argument\n" in copy
    assert f"  {{ if ({f}no_barrier)) {{  }} else {{ barrier(); }} }}\n  if (({f}adds) ? (twice < 9) : (twice > 9))) return 9;\n  barrier();\n" in copy
    assert f"return ({f}adds) ? (twice + 1) : (twice));\n" in copy


def test_two_faults_at_one_place_and_an_insertion_beside_them(tmp_path):
    one = "fault {} in kernel_gpu: x\n- if (twice > 9) return 9;\n{}\n"
    status, why, copy = run(tmp_path, k=one.format("a", "+ return 1;") + one.format("b", "+ return 2;") +
                            "fault c in kernel_gpu: x\n  return 9;\n+ run();\n  barrier();\n")
    assert status == 0, why
    f = "::assay_gpu::fault(::assay_gpu::Fault::"
    assert f"{{ if ({f}b)) {{ return 2; }} else {{ {{ if ({f}a)) {{ return 1; }} else {{ if (twice > 9) return 9; }} }} }} }}{{ if ({f}c)) {{ run(); }} }}\n" in copy


def test_an_edit_that_no_longer_fits(tmp_path):
    status, why, copy = run(tmp_path, k="# moved\n\nfault gone in kernel_gpu: x\n  if (\n- twice > 10\n+ true\n  ) return 9;\n")
    assert status == 1 and copy is None
    assert f"{tmp_path}/edits/portable/k.hpp.edit:4: fault gone no longer fits {tmp_path}/src/portable/k.hpp; expected\n    if ( twice > 10 ) return 9;" in why
    assert "line 5: if (twice > 9) return 9;" in why


def test_an_edit_that_fits_twice(tmp_path):
    status, why, copy = run(tmp_path, k="fault two in kernel_gpu: x\n- barrier();\n")
    assert status == 1 and copy is None
    assert "fault two fits" in why and "2 times, at lines 4, 6" in why


@pytest.mark.parametrize("text, expected", [
    ("fault a in kernel_gpu: x\n- twice = 2 * x;\nfault b in kernel_gpu: y\n  =\n- 2\n+ 3\n  * x\n", "overlaps fault a"),
    ("fault a in kernel_gpu\n- barrier();\n  return\n", ":1: expected 'fault NAME in KERNEL: what is wrong'"),
    ("fault a in kernel_gpu: x\nbarrier();\n", ":2: expected a line that begins with"),
    ("fault a in kernel_gpu: x\nfault b in kernel_gpu: y\n+ stop();\n", ":1: fault a changes nothing"),
    ("fault a in kernel_gpu: x\n+ stop();\n", ":2: an insertion needs a line of context"),
    ("fault a in kernel_gpu: x\n  barrier();\n", ":2: a hunk without a line that begins with - or +"),
    ("# nothing\n", "there is no fault in"),
])
def test_mistakes_in_the_edits(tmp_path, text, expected):
    status, why, copy = run(tmp_path, k=text)
    assert status == 1 and expected in why and copy is None, why


def test_names_are_taken_once_and_files_must_exist(tmp_path):
    edit = "fault a in kernel_gpu: x\n- twice > 9\n+ true\n"
    status, why, copy = run(tmp_path, k=edit, other=edit)
    assert status == 1 and copy is None
    assert f"other.hpp.edit: there is no {tmp_path}/src/portable/other.hpp" in why
    (tmp_path / "src" / "portable" / "other.hpp").write_text(SOURCE)
    done = subprocess.run([sys.executable, HERE / "plant.py", tmp_path / "src", tmp_path / "out", "--edits", tmp_path / "edits"],
                          capture_output=True, text=True)
    assert done.returncode == 1 and "there is a fault a already" in done.stderr


def test_races_alone(tmp_path):
    (tmp_path / "src" / "portable").mkdir(parents=True)
    (tmp_path / "edits" / "portable").mkdir(parents=True)
    (tmp_path / "src" / "portable" / "k.hpp").write_text(SOURCE)
    (tmp_path / "edits" / "portable" / "k.hpp.edit").write_text(
        "fault thrice in kernel_gpu: x\n- 2 * x\n+ 3 * x\n\nrace no_barrier in kernel_gpu: y\n- barrier();\n  if (twice\n")
    plant = [sys.executable, HERE / "plant.py", tmp_path / "src", tmp_path / "out", "--edits", tmp_path / "edits"]
    assert subprocess.run([*plant, "--races"]).returncode == 0
    copy = (tmp_path / "out" / "kernels" / "portable" / "k.hpp").read_text()
    assert "Fault::no_barrier" in copy and "Fault::thrice" not in copy
    assert subprocess.run([*plant, "--races", "--folder", "sm90"], capture_output=True).returncode == 1
