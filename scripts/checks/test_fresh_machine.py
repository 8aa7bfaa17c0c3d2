# SPDX-License-Identifier: Apache-2.0
"""scripts/setup and scripts/checks/fresh_machine with the commands they call replaced: what they ask for, what they say and leave
behind when something is missing or fails. The machine itself is the test repository.fresh_machine.
"""
import os
import pathlib
import shutil
import signal
import subprocess
import time

import pytest

CHECKS = pathlib.Path(__file__).resolve().parent
SETUP, FRESH = CHECKS.parent / "setup", CHECKS / "fresh_machine"
needs_apt = pytest.mark.skipif(
    shutil.which("apt-config") is None or subprocess.run(["git", "-C", CHECKS, "rev-parse", "HEAD"], capture_output=True).returncode != 0,
    reason="no apt on this machine, or the tree is no git checkout")


@pytest.fixture
def fakes(tmp_path):
    """fakes(name=script): puts commands before those of PATH; returns the environment."""
    folder, temporary = tmp_path / "bin", tmp_path / "tmp"
    folder.mkdir()
    temporary.mkdir()
    env = {k: v for k, v in os.environ.items() if k != "ASSAY_FRESH_MACHINE"}
    env |= {"PATH": f"{folder}:{env['PATH']}", "TMPDIR": str(temporary)}

    def add(**scripts):
        for name, text in scripts.items():
            path = folder / name.replace("_", "-")
            path.write_text("#!/bin/sh\n" + text + "\n")
            path.chmod(0o755)
        return env
    return add


def call(env, *words):
    done = subprocess.run([str(w) for w in words], env=env, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


def test_setup_lists_what_each_purpose_needs(fakes):
    env = fakes()
    lists = {p: set(call(env, SETUP, "--list", "--for", p)[1].split()) for p in ("run", "hip", "all")}
    assert lists["run"] < lists["hip"] < lists["all"] == set(call(env, SETUP, "--list")[1].split())
    assert {"g++", "cmake", "python3-matplotlib"} <= lists["run"]
    assert not lists["run"] & {"chromium", "clang-19", "libgtest-dev", "debootstrap"}
    assert lists["hip"] - lists["run"] == {"clang-19", "clang-tools-19", "lld-19", "libamdhip64-dev", "rocm-device-libs"}


def test_setup_check_names_what_is_missing(fakes):
    env = fakes(dpkg_query='case "$*" in *clang-tools-19*|*cmake*) exit 1 ;; *) printf installed ;; esac', apt_get="echo called; exit 1")
    assert call(env, SETUP, "--check") == (1, "setup: missing clang-tools-19 cmake\n")
    assert call(env, SETUP, "--check", "--for", "run") == (1, "setup: missing cmake\n")
    env = fakes(dpkg_query="printf installed")
    assert call(env, SETUP, "--check") == (0, "setup: everything is installed\n")


def test_setup_shows_what_apt_says_when_it_fails(fakes):
    env = fakes(dpkg_query="exit 1", id="echo 0", apt_get='echo "E: no route: $1"; [ "$1" = update ]')
    status, text = call(env, SETUP, "--for", "run")
    assert status == 6 and "E: no route: install" in text and "apt-get install failed" in text


@pytest.mark.parametrize("words", [["--for", "nothing"], ["--for"], ["--unknown"]])
def test_setup_refuses_what_it_does_not_know(fakes, words):
    status, text = call(fakes(apt_get="echo called"), SETUP, *words)
    assert status == 2 and "called" not in text


def test_fresh_machine_explains_itself(fakes):
    status, text = call(fakes(), FRESH, "--help")
    assert status == 0 and "--setup-only" in text and "77" in text
    assert call(fakes(), FRESH, "--unknown")[0] == 2


def test_fresh_machine_is_skipped_with_a_reason(fakes, tmp_path):
    assert call(fakes(id="echo 1000"), FRESH) == (77, "skipped: a fresh machine needs root (chroot)\n")
    assert call(fakes() | {"ASSAY_FRESH_MACHINE": "1"}, FRESH) == (77, "skipped: this is the fresh machine\n")
    env = fakes(id="echo 0")
    for tool in ("dirname", "git"):
        os.symlink(shutil.which(tool), tmp_path / "bin" / tool)
    assert call(env | {"PATH": str(tmp_path / "bin")}, "/bin/bash", FRESH) == (
        77, "skipped: no debootstrap; a fresh machine is made with it (scripts/setup)\n")


UNSHARE = 'while [ "${1#--}" != "$1" ] && [ "$1" != private ]; do [ "$1" = --propagation ] && shift; shift; done; exec "$@"'


@needs_apt
def test_fresh_machine_is_skipped_without_an_archive(fakes, tmp_path):
    env = fakes(id="echo 0", unshare=UNSHARE, debootstrap="echo called; exit 1")
    status, text = call(env, FRESH, "--mirror", f"file://{tmp_path}/nothing")
    assert status == 77 and "the archive of Debian bookworm cannot be reached" in text and "called" not in text
    assert list((tmp_path / "tmp").iterdir()) == []


def archive(tmp_path):
    folder = tmp_path / "archive" / "dists" / "bookworm"
    folder.mkdir(parents=True)
    (folder / "InRelease").write_text("Suite: oldstable\n")
    return f"file://{tmp_path}/archive"


@needs_apt
def test_fresh_machine_fails_and_cleans_up(fakes, tmp_path):
    env = fakes(id="echo 0", unshare=UNSHARE, debootstrap='mkdir -p "$3/proc"; echo "E: disk is full"; exit 1')
    status, text = call(env, FRESH, "--setup-only", "--mirror", archive(tmp_path))
    assert status == 1 and "E: disk is full" in text and "debootstrap failed" in text
    assert list((tmp_path / "tmp").iterdir()) == []


@needs_apt
def test_fresh_machine_interrupted_cleans_up(fakes, tmp_path):
    env = fakes(id="echo 0", unshare=UNSHARE, debootstrap='mkdir -p "$3"; exec sleep 60')
    process = subprocess.Popen([str(FRESH), "--setup-only", "--mirror", archive(tmp_path)], env=env, stdout=subprocess.DEVNULL)
    until = time.monotonic() + 30
    while not list((tmp_path / "tmp").glob("assay_fresh_*/root")) and time.monotonic() < until:
        time.sleep(0.05)
    assert list((tmp_path / "tmp").glob("assay_fresh_*/root"))
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 143
    assert list((tmp_path / "tmp").iterdir()) == []
