# SPDX-License-Identifier: Apache-2.0
"""Reads a results folder: rows.csv into a DataFrame, run.json into a dict.

The csv module reads the lines, because an error must name its line and column; pandas takes over after
that. Columns this file does not know are kept as text, so an older report reads a newer run.
"""
import csv
import dataclasses
import io
import json
import pathlib
import re

import numpy as np
import pandas as pd

# Kinds of the columns of rows.csv (harness/report/COLUMNS.md; a test compares).
TEXT = ("scenario", "kernel", "backend", "device", "device_uuid", "outcome", "reason", "op", "suite_place", "cache", "launch", "stop", "steady", "o_mostly", "lse_mostly",
        "limit", "calibration", "o_where", "lse_where", "check", "aggregate_where", "class_note", "repeatable", "batch_invariant", "contract", "declaration", "repeat")
NUMBERS = ("requests", "tokens", "max_kv_len", "decodes", "extends", "prefills", "time_us", "time_q1_us", "time_q3_us",
           "time_low_us", "time_high_us", "plan_us", "refresh_us", "total_us", "samples", "throttled", "sm_clock_mhz",
           "load", "steal_percent", "others_percent", "tflops", "gbytes_per_s",
           "tokens_per_s", "limit_percent",
           "o_max_error", "o_ratio", "lse_max_error", "lse_ratio", "o_median_ratio", "o_ratio_unrounded", "o_median_unrounded",
           "lse_median_ratio", "p_declined", "r_applied",
           "aggregate_ratio", "class_gate", "quantization_rms", "quantization_max", "rows_checked", "rows_total", "rows_surveyed", "reference_s", "case_s")
SCHEMA = 1  # of run.json: kSchemaVersion of harness/run/results_folder.hpp
REQUIRED = ("scenario", "kernel", "outcome")

# Worst first; passed, noisy and unsupported are fine (the others make a run fail).
OUTCOMES = ("wrong", "implausible", "crashed", "timed_out", "untrusted", "invalid", "unsupported", "noisy", "passed")
FINE = ("passed", "noisy", "unsupported")


class InputError(Exception):
    """Bad input: the text says where, what is wrong and what is accepted."""


@dataclasses.dataclass
class Run:
    rows: pd.DataFrame          # every column of TEXT and NUMBERS; missing: "" or NaN
    info: dict                  # run.json, {} when there is none
    folder: pathlib.Path
    warnings: list[str] = dataclasses.field(default_factory=list)

    def kernels(self) -> list[str]:
        """Kernels in an order that does not depend on which of them this run happened to use."""
        listed = self.info.get("kernels")
        names = []
        for entry in listed if isinstance(listed, list) else []:
            name = entry.get("name") if isinstance(entry, dict) else entry
            if isinstance(name, str) and name not in names:
                names.append(name)
        return names + sorted(set(self.rows["kernel"]) - set(names))

    def limit(self, name: str) -> float | None:
        limits = self.info.get("limits")
        value = limits.get(name) if isinstance(limits, dict) else None
        usable = isinstance(value, (int, float)) and not isinstance(value, bool) and np.isfinite(value) and value > 0
        return float(value) if usable else None


def number(text: str, place: str, column: str) -> float:
    if text == "":
        return np.nan
    # float() also reads "1_000", " 1" and "nan", which assay never writes.
    if re.fullmatch(r"-?(inf|\d+(\.\d+)?(e[+-]?\d+)?)", text):
        return float(text)
    raise InputError(f"{place}: '{text[:40]}' is no number in column '{column}'; expected a number, or nothing when it is missing")


def unguarded(cell: str) -> str:
    """Without the apostrophe that keeps spreadsheets from running a text as a formula (harness/report/text.hpp)."""
    return cell[1:] if len(cell) > 1 and cell[0] == "'" and cell[1] in "=+-@'" else cell


def read_rows(path: pathlib.Path, warnings: list[str]) -> pd.DataFrame:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); expected the rows.csv of `assay run`, `check` or `bench`")
    end = data.rfind(b"\n") + 1
    if end < len(data):
        warnings.append(f"{path}: the last line is half written (the run was interrupted); it is left out")
    try:
        text = data[:end].decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}:{line}: a byte that is not UTF-8; expected a rows.csv written by assay")
    zero = text.find("\0")
    if zero >= 0:  # what a disk leaves after a crash
        raise InputError(f"{path}:{text.count(chr(10), 0, zero) + 1}: zero byte; expected text (the disk or a crash damaged the file)")

    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    header, cells = None, []
    try:
        for line in reader:
            if header is None:
                header = line
                missing = [c for c in REQUIRED if c not in header]
                if missing:
                    raise InputError(f"{path}:1: no column {', '.join(missing)}; expected a rows.csv written by assay")
                twice = sorted({c for c in header if header.count(c) > 1})
                if twice:
                    raise InputError(f"{path}:1: column {', '.join(twice)} appears twice; expected every column once")
                continue
            place = f"{path}:{reader.line_num}"
            if len(line) != len(header):
                raise InputError(f"{place}: {len(line)} cells; expected {len(header)}, one per column of line 1")
            cells.append([number(value, place, name) if name in NUMBERS else unguarded(value) for name, value in zip(header, line)])
    except csv.Error as error:
        raise InputError(f"{path}:{reader.line_num}: {error}; expected comma-separated cells, quotes inside quoted cells doubled")
    if header is None:
        raise InputError(f"{path}:1: no line of columns; expected a rows.csv written by assay")
    frame = pd.DataFrame(cells, columns=header)
    for name in TEXT:
        if name not in frame:
            frame[name] = ""
    for name in NUMBERS:
        frame[name] = frame[name].astype(float) if name in frame else np.nan
    return frame


def load(folder: pathlib.Path) -> Run:
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; expected the results folder of `assay run --out FOLDER`")
    if not (folder / "rows.csv").is_file():
        raise InputError(f"{folder}: no rows.csv inside; expected the results folder of `assay run --out FOLDER`")
    warnings: list[str] = []
    frame = read_rows(folder / "rows.csv", warnings)
    info: dict = {}
    path = folder / "run.json"
    if path.is_file():
        try:
            info = json.loads(path.read_text(encoding="utf-8"))
        except json.JSONDecodeError as error:
            raise InputError(f"{path}:{error.lineno}:{error.colno}: {error.msg}; expected the run.json written by assay")
        except UnicodeDecodeError:
            raise InputError(f"{path}: not UTF-8; expected the run.json written by assay")
        except RecursionError:
            raise InputError(f"{path}: lists in lists without end; expected the run.json written by assay")
        if not isinstance(info, dict):
            raise InputError(f"{path}:1:1: a {type(info).__name__}; expected an object")
        version = info.get("schema_version", SCHEMA)
        if version != SCHEMA or isinstance(version, bool):
            raise InputError(f"{path}: schema_version is {str(version)[:40]}, this report reads {SCHEMA}; use the report of the assay that wrote it")
    else:
        warnings.append(f"{folder}: no run.json, so machine, limits and column meanings are not recorded in the report")
    return Run(frame, info, folder, warnings)
