# SPDX-License-Identifier: Apache-2.0
"""The checkers must find what they are for: each test plants one violation in a small tree."""
import os
import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import check_includes  # noqa: E402
import check_proofs  # noqa: E402
import check_style  # noqa: E402
import summarize_tests  # noqa: E402

SPDX = "// SPDX-License-Identifier: Apache-2.0\n"


def tree(tmp_path, contents):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "README.md").write_text("# t\n")
    for name, text in contents.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for folder in ("harness", "reference", "kernels"):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "README.md").write_text("# t\n")
    return tmp_path


def test_include_against_the_flow_is_found(tmp_path):
    root = tree(tmp_path, {"harness/problem/a.cpp": SPDX + '#include "harness/cli/b.hpp"\n', "harness/cli/b.hpp": SPDX})
    assert check_includes.check(root) == ["harness/problem/a.cpp:2: harness/problem must not include harness/cli (harness/cli/b.hpp)"]


def test_kernels_may_not_use_the_reference(tmp_path):
    root = tree(tmp_path, {"kernels/cpu/k.cpp": SPDX + '#include "reference/formats/formats.hpp"\n#include "harness/abi/assay_kernel.h"\n'})
    assert check_includes.check(root) == ["kernels/cpu/k.cpp:2: kernels must not include reference (reference/formats/formats.hpp)"]


def test_include_along_the_flow_is_fine(tmp_path):
    root = tree(tmp_path, {"harness/check/a.cpp": SPDX + '#include "reference/bounds/bounds.hpp"\n#include <vector>\n',
                           "harness/problem/a_test.cpp": SPDX + '#include "harness/cli/b.hpp"\n'})
    assert check_includes.check(root) == []


def test_style_violations_are_found(tmp_path):
    root = tree(tmp_path, {
        "harness/run/a.cpp": "int f() { printf(\"x\"); }\n",
        "harness/run/b.cpp": SPDX + "x\n" * 500,
        "harness/run/c.cpp": SPDX + "// caf\u00e9\n",
        "harness/run/d.cpp": SPDX + 'const char* p = "/ro' + 'ot/x";\n',
        "harness/README.md": "[gone](nowhere.md)\n",
    })
    (root / "harness" / "README.md").write_text("[gone](nowhere.md)\n")
    found = "\n".join(check_style.check(root))
    for part in ("a.cpp:1: no SPDX", "a.cpp:1: prints or exits", "b.cpp:450: 501 lines", "c.cpp:2: not ASCII", "d.cpp:2: names a path",
                 "link to nowhere.md"):
        assert part in found, found


def test_kernels_are_named_by_the_rule(tmp_path):
    code = SPDX + 'const char* a[] = {"paged_split256_gpu", "merge_states_gpu", "paged_fast_cpu", "prefill_new_gpu"};\n'
    root = tree(tmp_path, {"kernels/portable/x.cpp": code, "kernels/portable/README.md": "`paged_split256_gpu`, `merge_states_gpu`, `paged_fast_cpu`\n"})
    assert check_style.check(root) == [
        "kernels/portable/x.cpp:2: paged_fast_cpu is called op_method_arch, and the arch of kernels/portable is gpu",
        "kernels/portable/x.cpp:2: prefill_new_gpu is not in the table of kernels/portable/README.md"]


def test_steps_are_named_in_both_tables(tmp_path):
    root = tree(tmp_path, {"kernels/common/pipelines.cpp": SPDX + '{"old", &kOld},\n{"new", &kNew},\n',
                           "kernels/cpu/README.md": "`step_old_cpu`, `step_new_cpu`\n", "kernels/portable/README.md": "`step_old_gpu`\n"})
    assert check_style.check(root) == ["kernels/common/pipelines.cpp:1: step_new_gpu is not in the table of kernels/portable/README.md"]


def test_an_op_known_by_name_is_found(tmp_path):
    line = "bool f(int op) { return op == ASSAY_OP_PAGED; }\n"
    root = tree(tmp_path, {"harness/check/a.cpp": SPDX + line, "harness/run/b.cpp": SPDX + "// ASSAY_OP_PAGED\nint g = ops::paged.id;\n",
                           "harness/ops/paged.cpp": SPDX + line, "harness/check/a_test.cpp": SPDX + line, "kernels/cpu/k.cpp": SPDX + line})
    found = [line.split(": ")[0] for line in check_style.check(root)]
    assert found == ["harness/check/a.cpp:2", "harness/run/b.cpp:3"]


def test_a_switch_that_hides_a_new_case_is_found(tmp_path):
    body = "int f(int s) {{\n  switch ({0}) {{\n    case ASSAY_SCALE_NONE:\n      return 1;\n{1}  }}\n  return 0;\n}}\n"
    cast, default = "static_cast<assay_scale>(s)", "    default:\n      return 2;\n"
    root = tree(tmp_path, {"harness/input/a.cpp": SPDX + body.format("s", ""), "harness/input/b.cpp": SPDX + body.format(cast, default),
                           "reference/c.cpp": SPDX + body.format(cast, ""), "harness/input/d_test.cpp": SPDX + body.format("s", default)})
    found = [line.split(": ")[0] for line in check_style.check(root)]
    assert found == ["harness/input/a.cpp:3", "harness/input/b.cpp:6"]


def test_names_that_two_tests_of_a_module_declare_are_found(tmp_path):
    own = SPDX + "namespace assay {\nnamespace {\nconstexpr double kBudget = 1;\nstruct Case {\n  int kInside = 2;\n};\nint small(int a) {\n"
    end = "}\n}  // namespace\nint kOutside = 3;\n}  // namespace assay\n"
    other = own.replace("kBudget", "kOwn").replace("Case", "OwnCase").replace("small(int a)", "small(double a)")
    root = tree(tmp_path, {"harness/run/a_test.cpp": own + end, "harness/run/b_test.cpp": own + end, "harness/run/c_test.cpp": other + end,
                           "harness/check/a_test.cpp": own + end, "harness/run/d.cpp": own + end})
    assert [line.split(" is a name of ")[0] for line in check_style.check(root)] == [
        "harness/run/b_test.cpp:4: kBudget", "harness/run/b_test.cpp:5: Case", "harness/run/b_test.cpp:8: small",
        "harness/run/c_test.cpp:8: small"]  # of other parameters: default ones make the two ambiguous


def test_clean_tree_passes(tmp_path):
    assert check_style.check(tree(tmp_path, {"harness/run/a.cpp": SPDX + "int f();\n"})) == []


def test_a_skipped_step_is_said_and_fails_nothing(tmp_path, capsys):
    junit = tmp_path / "default.xml"
    junit.write_text('<testsuite><testcase name="a" status="run"/></testsuite>')
    assert summarize_tests.main([str(junit), "--", "build passed", "fresh machine: no root skipped"]) == 0
    assert "skipped fresh machine: no root\n" in capsys.readouterr().out
    assert summarize_tests.main([str(junit), "--", "build passed", "fresh machine failed"]) == 1


def test_names_of_files_that_are_gone_are_found(tmp_path):
    root = tree(tmp_path, {
        "harness/run/a.cpp": SPDX + "// See harness/run/gone.cpp, harness/run/a.cpp, gone_too.hpp, NAME.suite and x_test.cpp.\nint f();  // harness/old/\n",
        "scenarios/peers/p.suite": "# Apache-2.0: SPDX-License-Identifier: what test_theirs.py runs\n",
    })
    (root / "harness" / "README.md").write_text("see `a.cpp` and `gone.py`\n")
    found = [line for line in check_style.check(root) if "names" in line]
    assert [line.split(" names ")[1].split(",")[0] for line in sorted(found)] == ["gone.py", "gone_too.hpp", "harness/run/gone.cpp", "harness/old"], found


def test_types_of_one_name_are_found(tmp_path):
    named = "namespace assay {\nstruct Choice {\n};\n}  // namespace assay\n"
    hidden = "namespace assay {\nnamespace {\nstruct Choice {\n};\n}  // namespace\n}  // namespace assay\n"
    root = tree(tmp_path, {"harness/a/x.hpp": SPDX + named, "harness/b/y.cpp": SPDX + hidden, "reference/z.cpp": SPDX + hidden.replace("Choice", "Other") + named})
    subprocess.run(["git", "-C", root, "add", "-A"], check=True)
    assert [line for line in check_style.check(root) if "defined" in line] == ["reference/z.cpp:9: Choice is defined in harness/a/x.hpp:3 too"]


def test_gpu_code_that_was_looked_at_is_known_again(tmp_path):
    root = tree(tmp_path, {"kernels/sm90/a.cu": SPDX, "kernels/sm90/README.md": "a", "harness/abi/b.h": SPDX, "build/CMakeCache.txt": "ASSAY_GPU_QUICK:BOOL=OFF\n"})
    script = root / "scripts/checks/looked_at"
    script.parent.mkdir(parents=True)
    for name in ("looked_at", "code_hash.py"):
        shutil.copy(pathlib.Path(__file__).resolve().parent / name, script.parent / name)
    (root / "results").mkdir()
    subprocess.run(["git", "-C", root, "add", "-A"], check=True)
    tools = root / "tools"
    tools.mkdir()

    def looked_at(*options, tests=2, failed=0, release="13.0"):
        (tools / "nvcc").write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {release}'\n")
        (tools / "cmake").write_text("#!/bin/sh\n")
        (tools / "ctest").write_text(f"#!/bin/sh\necho '100% tests passed, {failed} tests failed out of {tests}'\nexit {failed}\n")
        for tool in tools.iterdir():
            tool.chmod(0o755)
        return subprocess.run(["bash", script, *options], env=os.environ | {"PATH": f"{tools}:{os.environ['PATH']}", "CUDACXX": str(tools / "nvcc")},
                              capture_output=True).returncode

    assert looked_at() == 1
    assert looked_at("--record", failed=1) == 1 and looked_at("--record", tests=1) == 1
    assert looked_at() == 1, "nothing is noted of code whose tests failed or were not there"
    assert looked_at("--record") == 0 and looked_at() == 0
    assert looked_at(release="13.1") == 2, "another compiler makes other code"
    (root / "kernels/sm90/README.md").write_text("b")
    assert looked_at() == 0
    (root / "harness/abi/b.h").write_text(SPDX + "int b;\n")
    assert looked_at() == 1 and looked_at(release="13.1") == 1
    (root / "build/CMakeCache.txt").write_text("ASSAY_GPU_QUICK:BOOL=ON\n")
    assert looked_at("--record") == 1


BOUNDS = """## 2 Lemmas
**L1 (a).** text
**L2 (b).** text
| term | computed by |
| :-- | :-- |
| L1, L2: `c` | `Model::chain`, `part` (`bounds_terms.cpp`); `Other::sum` |
| score (P) | `random` (`bounds_terms.cpp`) |

## 5 Tier P
| | systematic (in S) | variance |
| :-- | :-- | :-- |
| score | x | y |

## 12 Data ops

    O: a formula
"""


def bounds_tree(tmp_path, document):
    for name, text in {"reference/bounds/BOUNDS.md": document, "harness/a.hpp": "struct Other { double sum(); };\n",
                       "reference/bounds/bounds_terms.cpp": "double Model::chain() { return 0; }\ndouble part() { return 0; }\ndouble random() { return 0; }\n"}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return [line.split(": ", 1)[1] for line in check_proofs.check_bounds(tmp_path)]


def test_terms_of_the_bounds_name_what_computes_them(tmp_path):
    data_ops = "section 12 has formulas, and no row says what computes them"
    good = BOUNDS.replace("| score (P) |", "| score (P), section 12 |")
    assert bounds_tree(tmp_path, good) == []
    assert bounds_tree(tmp_path, BOUNDS) == [data_ops]
    assert bounds_tree(tmp_path, good.replace("`part`", "`gone`")) == ["no function or type gone", "bounds_terms.cpp has no gone"]
    assert bounds_tree(tmp_path, good.replace("Other::sum", "Other::all")) == ["no function or type Other::all"]
    assert bounds_tree(tmp_path, good.replace("`part` (`bounds_terms.cpp`)", "`sum` (`bounds_terms.cpp`)")) == ["bounds_terms.cpp has no sum"]
    assert bounds_tree(tmp_path, good.replace("bounds_terms", "bounds_gone")) == ["no file bounds_gone.cpp"] * 2
    assert bounds_tree(tmp_path, good.replace("L1, L2: `c`", "L1: `c`")) == ["no row says what computes L2"]
    assert bounds_tree(tmp_path, good.replace("`random` (`bounds_terms.cpp`)", "by hand")) == ['"score (P), section 12" names nothing that computes it']
    assert bounds_tree(tmp_path, good.replace("score (P)", "scores (P)")) == ['no row says what computes "score (P)"']
    assert bounds_tree(tmp_path, "nothing") == ["no table of what computes each term"]
