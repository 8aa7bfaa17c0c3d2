# SPDX-License-Identifier: Apache-2.0
"""check_cubins.py must find what it is for, in code compiled for the purpose (spoilt.cu) and in other files."""
import os
import pathlib
import subprocess
import sys

CHECK = pathlib.Path(__file__).resolve().parents[3] / "scripts" / "checks" / "check_cubins.py"
LIBRARY = os.environ["ASSAY_SPOILT"]


def run(*arguments):
    done = subprocess.run([sys.executable, CHECK, *arguments], capture_output=True, text=True)
    return done.returncode, done.stdout


def test_frames_are_found():
    status, text = run(LIBRARY, "90")
    found = [line for line in text.splitlines() if line.startswith("FOUND")]
    assert status == 1
    assert any("spills_vectors: a stack frame of" in f for f in found), text
    assert not any("is_fine" in f for f in found), text
    assert "is_fine" in text


def test_products_of_a_warpgroup_are_found():
    _, text = run(LIBRARY, "90")
    found = [line for line in text.splitlines() if line.startswith("FOUND")]
    assert any("without_wgmma: no product" in f for f in found), text
    assert any("serial_wgmma: 8 waits for 8 products" in f for f in found), text
    assert not any("queued_wgmma" in f for f in found), text


def test_other_architectures_and_files():
    status, text = run(LIBRARY, "80")
    assert status == 1 and "no code for sm_80; there is code for: sm_90" in text
    status, text = run(sys.executable, "90")
    assert status == 1 and "--no-compress" in text
    assert run(LIBRARY, "sm_90")[0] == 2
