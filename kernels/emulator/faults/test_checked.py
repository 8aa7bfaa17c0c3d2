# SPDX-License-Identifier: Apache-2.0
"""checked.py: of a check that is stopped its whole rows come with the exception, not one that was cut off."""
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from checked import rows_of  # noqa: E402


def program(folder, end: str) -> str:
    path = folder / "assay"
    path.write_text(f"""#!/bin/bash
while [ "$1" != --out ]; do shift; done
mkdir "$2"
printf 'kernel,outcome,reason\\na,passed,\\nb,wr' >"$2/rows.csv"
{end}
""")
    path.chmod(0o755)
    return str(path)


def test_rows_of_a_check_that_was_stopped(tmp_path):
    with pytest.raises(subprocess.TimeoutExpired) as late:
        rows_of(program(tmp_path, "exec sleep 60"), "library", ["line"], [], seconds=1)
    assert late.value.rows == [{"kernel": "a", "outcome": "passed", "reason": ""}]


def test_rows_of_a_check_that_ended(tmp_path):
    assert [row["kernel"] for row in rows_of(program(tmp_path, "exit 1"), "library", ["line"], [])] == ["a"]
    with pytest.raises(SystemExit):
        rows_of(program(tmp_path, "exit 2"), "library", ["line"], [])
