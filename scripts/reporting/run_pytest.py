# SPDX-License-Identifier: Apache-2.0
"""Runs pytest for ctest: 77 (skipped) with the reason when pytest or what the tests import is missing,
because the rest of assay builds and runs without any python package.
"""
import importlib.util
import sys

sys.dont_write_bytecode = True  # the source tree stays as it is
missing = [p for p in ("pytest", "numpy", "pandas", "matplotlib", "jinja2") if importlib.util.find_spec(p) is None]
if missing:
    print(f"skipped: {sys.executable} has no {', '.join(missing)}; run scripts/setup")
    sys.exit(77)

import pytest  # noqa: E402

sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-rs", *sys.argv[1:]]))
