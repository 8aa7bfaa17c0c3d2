#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every timed call behind the rows of a results folder (samples.bin; harness/run/samples.hpp).

    frame = samples.load(folder)                     # row, left_out, us, sm_mhz, at_s
    frame[~frame.left_out].groupby("row").us.median()   # the column time_us of rows.csv, row by row
    scripts/reporting/samples.py FOLDER              # do rows.csv and samples.bin agree?
"""
import pathlib
import sys

import numpy as np
import pandas as pd

DTYPE = [("row", "<u4"), ("flags", "<u4"), ("us", "<f8"), ("sm_mhz", "<f4"), ("at_s", "<f4")]
LEFT_OUT = 1


def load(folder: pathlib.Path) -> pd.DataFrame:
    """One line per call, in order; empty when nothing was timed. A killed run's half record is left out."""
    path = folder / "samples.bin"
    records = np.fromfile(path, DTYPE) if path.is_file() else np.empty(0, DTYPE)
    frame = pd.DataFrame(records)
    frame["left_out"] = frame.pop("flags") & LEFT_OUT != 0
    return frame


def disagreements(rows: pd.DataFrame, samples: pd.DataFrame) -> list[str]:
    """Where the columns of rows.csv are not what the samples give."""
    kept = samples[~samples.left_out].groupby("row").us
    found = pd.DataFrame({"samples": kept.size(), "time_us": kept.median(), "time_q1_us": kept.quantile(0.25),
                          "time_q3_us": kept.quantile(0.75)}).reindex(rows.index)
    found["samples"] = found.samples.fillna(0)
    expected = rows[found.columns].copy()
    expected["samples"] = expected.samples.fillna(0)
    # Quartiles lie between two samples; numpy rounds that step otherwise than we do.
    equal = np.isclose(found, expected, rtol=1e-12, atol=0, equal_nan=True)
    return [f"row {i}: {name} is {expected.iloc[i][name]:.17g}, its samples give {found.iloc[i][name]:.17g}"
            for i, j in zip(*np.nonzero(~equal)) for name in [found.columns[j]]]


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    from rows import InputError, load as load_run  # beside this file
    folder = pathlib.Path(sys.argv[1])
    try:
        rows = load_run(folder).rows
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    wrong = disagreements(rows, load(folder))
    print("\n".join(wrong) if wrong else f"{int((rows.samples > 0).sum())} timed rows agree with their samples")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
