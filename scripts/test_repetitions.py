# SPDX-License-Identifier: Apache-2.0
"""Of intervals and medians by hand: which of the others each interval holds."""
from repetitions import covered


def row(low, median, high):
    return {"time_low_us": str(low), "time_us": str(median), "time_high_us": str(high)}


def test_counts_ordered_pairs_and_no_row_with_itself():
    rows = [row(9, 10, 11), row(10.5, 11, 11.5), row(1, 20, 30)]
    # 9..11 holds 11 and not 20; 10.5..11.5 holds neither; 1..30 holds both.
    assert covered(rows) == 3 / 6
    assert covered([row(1, 2, 3), row(1, 2, 3)]) == 1
