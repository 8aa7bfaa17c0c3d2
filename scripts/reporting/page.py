# SPDX-License-Identifier: Apache-2.0
"""The HTML report: one file with everything inside, so that it can be mailed, attached to a CI job and
opened from disk. The rows travel as JSON and page.js draws the table; what matters most (tally, failing
cases with their commands) is plain HTML and needs no script.
"""
import base64
import datetime
import json
import math
import pathlib
import re
import shlex

import jinja2
import numpy as np
import pandas as pd

from . import style
from .plots import Picture
from .rows import FINE, NUMBERS, OUTCOMES, Run

HERE = pathlib.Path(__file__).parent
FAILURES_SHOWN = 50
SHOWN_AT_FIRST = ("outcome", "kernel", "scenario", "cache", "launch", "time_us", "total_us", "tflops", "gbytes_per_s", "tokens_per_s", "limit_percent",
                  "o_ratio", "o_ratio_unrounded", "lse_ratio")
TALLY_ORDER = ("passed", "wrong", "unsupported", "untrusted", "crashed", "timed_out", "invalid", "implausible", "noisy")  # as the program prints it
NOT_RECORDED = "not recorded"


def cell(value):
    """A value JSON can hold."""
    if isinstance(value, str):
        return value
    if value is None or math.isnan(value):
        return None
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return int(value) if value == int(value) and abs(value) < 2**53 else float(value)


def columns_of(run: Run) -> list[dict]:
    known = {}
    listed = run.info.get("columns")
    for entry in listed if isinstance(listed, list) else []:
        if isinstance(entry, dict) and isinstance(entry.get("name"), str):
            known[entry["name"]] = entry
    columns = []
    for name in run.rows.columns:
        entry = known.get(name, {})
        columns.append({"name": name, "label": label(name), "unit": str(entry.get("unit") or ""), "meaning": str(entry.get("meaning") or ""),
                        "number": name in NUMBERS, "whole": name in NUMBERS and is_whole(run.rows[name]),
                        "shown": name in SHOWN_AT_FIRST and bool(tells_apart(run.rows[name]))})
    first = {name: i for i, name in enumerate(SHOWN_AT_FIRST)}
    return sorted(columns, key=lambda c: first.get(c["name"], len(first)))


def label(name: str) -> str:
    """As in the program's own table: the unit stands below, so the name need not carry it."""
    return "of_limit" if name == "limit_percent" else re.sub(r"(_us|_per_s|_s)$", "", name)


def is_whole(column: pd.Series) -> bool:
    values = column[np.isfinite(column)]
    return bool((values == values.round()).all())


def has_values(column: pd.Series) -> bool:
    return bool((column != "").any()) if column.dtype == object else bool(column.notna().any())


def tells_apart(column: pd.Series) -> bool:
    """Worth a column at first: has values, and where one word may stand everywhere, more than that word."""
    return has_values(column) and (column.name != "launch" or bool((column == "graph").any()))


def count(n: int, thing: str) -> str:
    return f"{n:,} {thing}{'' if n == 1 else 's'}"


def verdict(rows: pd.DataFrame) -> str:
    """One sentence: rows (a case with a kernel and what was timed) and cases told apart, and what a pass hides."""
    if rows.empty:
        return "This run has no rows."
    failing = rows[~rows.outcome.isin(FINE)]
    cases = count(rows.scenario.nunique(), "case")
    text = (f"{len(failing):,} of {count(len(rows), 'row')} failed, in {failing.scenario.nunique():,} of {cases}." if len(failing)
            else f"No row failed: {count(len(rows), 'row')} of {cases}.")
    useless = int(((rows.outcome == "passed") & (rows.class_note != "")).sum())
    if useless:
        text += f" {useless:,} of the passed {'is' if useless == 1 else 'are'} correct but useless."
    noisy = int((rows.outcome == "noisy").sum())
    if noisy:
        text += f" {noisy:,} {'is' if noisy == 1 else 'are'} right but too noisy to say how fast."
    nothing = rows.groupby("scenario").outcome.agg(lambda o: bool((o == "unsupported").all())).sum()
    if nothing:
        text += f" {count(int(nothing), 'case')} refused by every kernel."
    return text


def about(run: Run) -> list[str]:
    """What one asks of any report first: when, of which commit, on what."""
    info = run.info
    parts = []
    if info.get("start"):
        parts.append(text_of(info["start"]).replace("T", " ").replace("+00:00", "Z").replace("Z", " UTC"))
    parts.append("commit " + (text_of(info["commit"])[:12] + (" with changes" if info.get("dirty") is True else "") if info.get("commit")
                              else NOT_RECORDED))
    named = run.rows[run.rows.device != ""]
    devices = [f"{device} ({', '.join(sorted(set(group.backend)))})" for device, group in named.groupby("device", sort=False)]
    parts.append("; ".join(devices[:3]) + (f"; {len(devices) - 3} more" if len(devices) > 3 else "") if devices else "device " + NOT_RECORDED)
    return parts


def bytes_text(value) -> str:
    return f"{value / 2**30:.4g} GiB" if isinstance(value, (int, float)) and value > 0 else NOT_RECORDED


def duration(info: dict) -> str:
    try:
        start, end = (datetime.datetime.fromisoformat(str(info[k]).replace("Z", "+00:00")) for k in ("start", "end"))
        seconds = (end - start).total_seconds()
    except (KeyError, ValueError, TypeError):  # TypeError: one with a time zone, one without
        return NOT_RECORDED
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.1f} min"


def text_of(value) -> str:
    if value is None or value == "" or value == [] or value == {}:
        return NOT_RECORDED
    if isinstance(value, dict):
        return ", ".join(f"{k} {text_of(v)}" for k, v in value.items())
    if isinstance(value, list):
        return " ".join(shlex.quote(v) if isinstance(v, str) else text_of(v) for v in value)
    return str(value)


def facts(run: Run) -> list[tuple[str, list[tuple[str, str]]]]:
    info = run.info
    machine = info.get("machine") if isinstance(info.get("machine"), dict) else {}
    limits = info.get("limits") if isinstance(info.get("limits"), dict) else {}

    def rate(name: str, unit: str, divisor: float) -> str:
        value = run.limit(name)
        return f"{value / divisor:.4g} {unit}" if value else NOT_RECORDED

    named = {"cpu", "cores", "memory_bytes", "os"}
    rates = [("read", "read_bytes_per_s", "GB/s", 1e9), ("copy", "copy_bytes_per_s", "GB/s", 1e9),
             ("matrix, fp32", "matrix_flops_fp32", "TFLOP/s", 1e12), ("matrix, bf16", "matrix_flops_bf16", "TFLOP/s", 1e12)]
    used = {r[1] for r in rates}
    return [
        ("Run", [("command", text_of(info.get("command"))), ("suite", text_of(info.get("suite"))), ("seed", text_of(info.get("seed"))),
                 ("start", text_of(info.get("start"))), ("took", duration(info)), ("commit", text_of(info.get("commit"))),
                 ("compiler", text_of(info.get("compiler")))]),
        ("Machine", [("cpu", text_of(machine.get("cpu"))), ("cores", text_of(machine.get("cores"))),
                     ("memory", bytes_text(machine.get("memory_bytes"))), ("system", text_of(machine.get("os")))]
         + [(k.replace("_", " "), text_of(v)) for k, v in machine.items() if k not in named]),
        ("Measured limits", [(label, rate(name, unit, divisor)) for label, name, unit, divisor in rates]
         + [(k.replace("_", " "), text_of(v) if v else NOT_RECORDED) for k, v in limits.items() if k not in used]),
    ]


def failures(rows: pd.DataFrame) -> list[dict]:
    rank = {name: i for i, name in enumerate(OUTCOMES)}
    failing = rows[~rows.outcome.isin(FINE)]
    failing = failing.iloc[np.argsort([rank.get(o, -1) for o in failing.outcome], kind="stable")]
    return [{"outcome": r.outcome, "kernel": r.kernel, "scenario": r.scenario, "reason": r.reason or "no reason given",
             "where": r.o_where or r.lse_where, "command": r.repeat} for r in failing.itertuples()]


def safe_json(value) -> str:
    """JSON inside a <script>: no text may end the element."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def data_uri(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def write(run: Run, pictures: list[Picture], out: pathlib.Path) -> pathlib.Path:
    rows = run.rows
    columns = columns_of(run)
    names = [c["name"] for c in columns]
    failing = failures(rows)
    counts = rows.outcome.value_counts()
    outcomes = [(o, int(counts.get(o, 0))) for o in TALLY_ORDER]
    outcomes += [(o, int(n)) for o, n in counts.items() if o not in OUTCOMES]
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(HERE), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    suite = run.info.get("suite")
    html = environment.get_template("page.html.j2").render(
        title=text_of(suite) if suite else run.folder.resolve().name,
        css=(HERE / "page.css").read_text(encoding="utf-8"),
        script=(HERE / "page.js").read_text(encoding="utf-8"),
        outcomes=outcomes, colors=style.OUTCOME_COLORS, unknown_color=style.UNKNOWN_COLOR,
        total=len(rows), verdict=verdict(rows), about=about(run), failing=failing[:FAILURES_SHOWN], failing_total=len(failing),
        pictures=[(p, data_uri("image/svg+xml", p.svg) if p.svg else "", data_uri("text/csv", p.csv.encode())) for p in pictures],
        facts=facts(run), kernels=[k for k in run.kernels() if k in set(rows.kernel)], warnings=run.warnings, columns=columns,
        data=safe_json({"columns": columns, "rows": [[cell(v) for v in line] for line in rows[names].to_numpy(dtype=object)],
                        "severity": {o: i for i, o in enumerate(OUTCOMES)}, 
                        "colors": style.OUTCOME_COLORS}),
        not_recorded=NOT_RECORDED)
    out.mkdir(parents=True, exist_ok=True)
    index = out / "index.html"
    index.write_text(html, encoding="utf-8")
    return index
