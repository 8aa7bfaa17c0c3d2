# SPDX-License-Identifier: Apache-2.0
"""check_isa.py must find what it is for, in code compiled for the purpose (spoilt.cu) and in damaged files."""
import os
import pathlib
import subprocess
import sys

import pytest

CHECK = pathlib.Path(__file__).resolve().parents[3] / "scripts" / "checks" / "check_isa.py"
LIBRARY, LLVM = os.environ["ASSAY_SPOILT"], os.environ["ASSAY_LLVM_BIN"]
ARCHS = os.environ["ASSAY_HIP_ARCHS"].split()

sys.path.insert(0, str(CHECK.parent))
import check_isa  # noqa: E402

if missing := [t for t in check_isa.TOOLS if not (pathlib.Path(LLVM) / t).exists()]:
    print(f"skipped: {LLVM} has no {', '.join(missing)}")
    os._exit(77)


def run(*arguments):
    done = subprocess.run([sys.executable, CHECK, *arguments], capture_output=True, text=True)
    return done.returncode, done.stdout


@pytest.mark.parametrize("arch", ARCHS)
def test_spills_and_scratch_are_found(arch):
    status, text = run(LIBRARY, arch, LLVM)
    found = [line for line in text.splitlines() if line.startswith("FOUND")]
    assert status == 1
    assert any("spills_vectors: " in f and "VGPRs are spilled" in f for f in found), text
    assert any("spills_vectors: " in f and "scratch" in f for f in found), text
    assert any("spills_scalars: " in f and "SGPRs are spilled" in f for f in found), text
    assert any("uses_scratch: " in f and "scratch" in f for f in found), text
    assert not any("is_fine" in f for f in found), text


def test_expected_instructions():
    kernels, code = check_isa.read(LIBRARY, ARCHS[0], pathlib.Path(LLVM))
    kernels = [k for k in kernels if k.name == "is_fine"]
    assert check_isa.check(kernels, code, ["is_fine:v_(fma|fmac|fmaak|madak)_f32"]) == []
    assert check_isa.check(kernels, code, ["is_fine:v_mfma"]) == ["is_fine: no instruction v_mfma"]
    assert check_isa.check(kernels, code, ["decode:v_mfma"]) == ["no kernel is called decode, of which v_mfma is expected"]


def test_other_facts():
    facts = dict.fromkeys(check_isa.FIELDS, 0) | {"wavefront_size": 64, "group_segment_fixed_size": 65536}
    fine = check_isa.Kernel("k", "k", facts, False)
    assert check_isa.findings(fine) == []
    assert "LDS" in check_isa.findings(check_isa.Kernel("k", "k", facts | {"group_segment_fixed_size": 65552}, False))[0]
    assert "lanes" in check_isa.findings(check_isa.Kernel("k", "k", facts | {"wavefront_size": 32}, False))[0]
    assert "stack" in check_isa.findings(check_isa.Kernel("k", "k", facts, True))[0]
    assert check_isa.check([], {}, []) == ["no kernel in this library"]


def test_unreadable_libraries(tmp_path):
    status, text = run(LIBRARY, "gfx1100", LLVM)
    assert status == 1 and "no code for gfx1100; there is code for: " + ", ".join(sorted(ARCHS)) in text
    status, text = run(sys.executable, ARCHS[0], LLVM)
    assert status == 1 and ".hip_fatbin" in text
    with pytest.raises(check_isa.Unreadable, match="compressed"):
        check_isa.bundled(b"CCOB" + bytes(100), ARCHS[0])
    with pytest.raises(check_isa.Unreadable, match="do not say .*sgpr_spill_count"):
        check_isa.kernels_of("amdhsa.kernels:\n  - .name: k\n    .vgpr_count: 3\namdhsa.target: t\n")
