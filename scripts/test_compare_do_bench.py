# SPDX-License-Identifier: Apache-2.0
"""Of readings and rounds by hand: what was seen in a stretch of time, and what a length comes to."""
import math

from compare_do_bench import Round, seen_between, summary


def test_readings_of_the_stretch_count_and_a_torn_line_does_not():
    lines = ["1.0 1980 300.0", "2.0 1755 690.0", "2.5 1800 700.0", "3.0 1770 695.0", "4.0 345 90.0", "4.1 3"]
    assert seen_between(lines, 2, 3) == (1770, 695)
    assert all(math.isnan(x) for x in seen_between(lines, 5, 6))


def test_medians_are_compared_and_intervals_counted():
    rounds = [Round(99, 100, 101, 99, 103, 1700, 1710), Round(90, 110, 102, 100, 104, 1720, 1700), Round(95, 102, 106, 103, 109, 1740, 1690)]
    assert summary(rounds) == ("of 3: do_bench 95.00 (90.00 to 99.00), held 102.00 (100.00 to 110.00) at 1720 MHz, assay 102.00 (101.00 to 106.00) at 1700: +0.0 %; "
                               "held within 1 of 3 intervals")
