# SPDX-License-Identifier: Apache-2.0
"""What the checks of planted GPU libraries (gpu_clock.py, gpu_crash.py) ask first: is the library there, and a GPU?"""
import pathlib
import subprocess


def reason_to_skip(program: pathlib.Path, library: pathlib.Path, scenario: str, kernel: str) -> str | None:
    """Why nothing can be looked at here, or None; a run of `kernel` on `scenario` asks for the device."""
    for file in (program, library):
        if not file.exists():
            return f"{file.name} was not built"
    probe = subprocess.run([program, "check", scenario, "--backend", library, "--kernel", kernel], capture_output=True, text=True)
    return "there is no CUDA device on this machine" if "no device" in probe.stdout + probe.stderr else None
