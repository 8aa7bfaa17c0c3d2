# SPDX-License-Identifier: Apache-2.0
"""Configuring on machines where something is missing or broken: a backend is left out with its reason and the rest goes on
(cmake/Backends.cmake), and a folder whose path holds spaces is like any other.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import draw  # noqa: E402

TREE = pathlib.Path(__file__).resolve().parents[2]
CLANG = pathlib.Path("/usr/lib/llvm-19/bin/clang++")
PARTS = [CLANG, CLANG.parent / "lld", CLANG.parent / "clang-offload-bundler", pathlib.Path("/usr/include/hip/hip_runtime.h")]
needs_hip = pytest.mark.skipif(not all(p.exists() for p in PARTS), reason="no HIP from Debian's packages; run scripts/setup --for hip")


def run(*words, env=None):
    clean = {k: v for k, v in os.environ.items() if k not in ("CUDACXX", "HIPCXX", "ROCM_PATH")}
    done = subprocess.run([str(w) for w in words], env=clean | (env or {}), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


def configure(build, *options, tree=TREE, env=None):
    return run("cmake", "-G", "Ninja", "-S", tree, "-B", build, "-DASSAY_BENCHMARKS=OFF", *options, env=env)


def command(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + text + "\n")
    path.chmod(0o755)
    return path


def test_a_broken_nvcc_is_left_out(tmp_path):
    nvcc = command(tmp_path / "bin" / "nvcc", 'echo "nvcc fatal   : no licence" >&2; exit 1')
    options = ["-DASSAY_HIP=OFF", "-DASSAY_TESTS=OFF"]
    status, text = configure(tmp_path / "build", *options, env={"CUDACXX": str(nvcc)})
    assert status == 0 and "backends: cpu yes, hip no (ASSAY_HIP=OFF), cuda no (a small kernel cannot be built: " in text, text
    assert "assay_cuda:" not in run("ninja", "-C", tmp_path / "build", "-t", "targets", "all")[1]
    status, text = configure(tmp_path / "build", *options, "-DASSAY_CUDA=ON", env={"CUDACXX": str(nvcc)})
    assert status != 0 and "ASSAY_CUDA=ON, but libassay_cuda.so cannot be built" in text, text


@needs_hip
def test_hip_that_does_not_link_is_left_out_until_it_does(tmp_path):
    # As on a machine whose clang lacks a part it calls late: every compilation is fine, device code is not put together.
    folder = tmp_path / "llvm"
    for part in PARTS[1:3]:
        command(folder / part.name, f'exec {part} "$@"')
    broken = 'for w; do [ "$w" = -shared ] && { echo "error: bundler cannot be run" >&2; exit 1; }; done\n'
    clang = command(folder / "clang++", f'{broken}exec {CLANG} "$@"')
    options = ["-DASSAY_CUDA=OFF", "-DASSAY_TESTS=OFF", f"-DASSAY_HIP_CLANG={clang}", "-DASSAY_HIP_ARCHITECTURES=gfx942"]
    status, text = configure(tmp_path / "build", *options)
    assert status == 0 and re.search(r"hip no \(a small kernel cannot be built: .*bundler cannot be run", text), text
    command(clang, f'exec {CLANG} "$@"')
    status, text = configure(tmp_path / "build", *options)
    assert status == 0 and "hip yes" in text, text

    (folder / "clang-offload-bundler").unlink()
    status, text = configure(tmp_path / "other", *options)
    assert status == 0 and "are missing: clang-tools-19)" in text, text


def test_a_build_has_what_is_drawn(tmp_path):
    build = tmp_path / "build"
    options = ["-DASSAY_HIP=OFF", "-DASSAY_CUDA=OFF", "-DASSAY_JOIN_TESTS=ON"]  # not so by default with a compiler cache
    for tree in ("1234567", "7654321"):
        status, text = configure(build, *options, f"-DASSAY_DRAW={tree}")
        drawn = draw.drawn(tree)
        assert status == 0 and "-- draw: " + " ".join(drawn) + "\n" in text, text
        targets = set(re.findall(r"^([\w.]+): ", run("ninja", "-C", build, "-t", "targets", "all")[1], re.M))
        for family, target in {"lanes32": "assay_emu32_check", "lanes64": "assay_emu64", "sm90": "assay_emu_sm90", "planted": "assay_gpu_races32",
                               "judging": "check_tests"}.items():
            assert (target in targets) == (family in drawn), (family, target)
        listed = run("ctest", "--test-dir", build, "-N")[1]
        for group in draw.left_out(build / "draw.txt"):
            if group not in draw.SLOW and group != "planted":
                assert f": {group}.program." in listed, group
    status, text = configure(build, *options, "-DASSAY_DRAW=lanes32")
    assert status != 0 and "neither all, tree nor the hash of a tree" in text, text


def test_tests_are_left_out_without_googletest(tmp_path):
    options = ["-DASSAY_HIP=OFF", "-DASSAY_CUDA=OFF", "-DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON"]
    status, text = configure(tmp_path / "build", *options)
    assert status == 0 and "tests: no" in text, text
    assert configure(tmp_path / "build", *options, "-DASSAY_TESTS=ON")[0] != 0


@needs_hip
def test_a_path_with_spaces(tmp_path):
    tree = tmp_path / "a b" / "assay (copy)"
    files = subprocess.run(["git", "-C", TREE, "ls-files", "-z", "--cached", "--others", "--exclude-standard"], check=True,
                           capture_output=True, text=True).stdout.split("\0")
    for name in filter(None, files):
        if (TREE / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(TREE / name, tree / name)
    build = tree / "build"
    status, text = configure(build, "-DASSAY_CUDA=OFF", "-DASSAY_TESTS=OFF", "-DASSAY_HIP_ARCHITECTURES=gfx942", tree=tree)
    assert status == 0 and "hip yes" in text, text
    objects = [line.split(":")[0] for line in run("ninja", "-C", build, "-t", "targets", "all")[1].splitlines()
               if re.search(r"correct\.cu\.o: HIP_COMPILER|quantize\.cpp\.o: CXX_COMPILER", line)]
    assert len(objects) == 2, objects
    status, text = run("ninja", "-C", build, *objects)
    assert status == 0, text
