# SPDX-License-Identifier: Apache-2.0
"""Invented results folders for the tests of the report: plausible in shape and size, measured nowhere.
(Marked as invented in run.json too, should one ever be looked at by itself.)
"""
import csv
import json
import math
import pathlib
import random

from . import rows as schema

HEADER = ("scenario kernel backend device device_uuid outcome reason op suite_place requests tokens max_kv_len decodes extends prefills time_us "
          "time_q1_us time_q3_us time_low_us time_high_us plan_us refresh_us total_us samples throttled sm_clock_mhz load steal_percent others_percent "
          "cache launch stop steady tflops gbytes_per_s tokens_per_s limit_percent "
          "limit calibration o_max_error o_ratio lse_max_error lse_ratio o_where lse_where check o_median_ratio o_ratio_unrounded o_median_unrounded lse_median_ratio p_declined r_applied o_mostly lse_mostly "
          "aggregate_ratio aggregate_where class_gate class_note quantization_rms quantization_max repeatable batch_invariant contract declaration repeat rows_checked rows_total rows_surveyed "
          "reference_s case_s").split()
KERNELS = ("paged_fast", "paged_naive", "prefill_fast", "prefill_naive")
READ, FP32, BF16 = 17.2e9, 0.142e12, 0.31e12
UNITS = {"tflops": "TFLOP/s", "gbytes_per_s": "GB/s", "tokens_per_s": "tokens/s", "limit_percent": "%"}
REASONS = {
    "wrong": "37 of 65536 elements of O out of bounds", "crashed": "worker ended by signal 11 (SIGSEGV)",
    "unsupported": 'required layout=shuffled, supported nhd hnd x, missing "shuffled"', "timed_out": "no answer within 60 s",
    "untrusted": "the bound would accept an output of zeros", "implausible": "faster than the measured limits allow",
    "noisy": "too noisy to say how fast", "invalid": "page table shorter than the longest request"}


def k(n: int) -> str:
    return f"{n >> 10}k" if n % 1024 == 0 else str(n)


def cases(rng):
    """(scenario, kernels, requests, q, kv, kind counts)"""
    for fmt in ("bf16", "fp8_e4m3:head"):
        kv = "" if fmt == "bf16" else f" kv={fmt}"
        for length in (256, 1024, 4096, 16384, 65536):
            yield f"paged{kv} batch=8q1s{k(length)} seed=1", KERNELS[:2], 8, 8, length, (8, 0, 0)
    for length in (128, 512, 2048, 8192):
        yield f"prefill h=32/8 d=128 batch=1q{k(length)} seed=1", KERNELS[2:], 1, length, length, (0, 0, 1)
        yield f"prefill h=32/8 d=64 mask=full batch=1q{k(length)} seed=1", KERNELS[2:], 1, length, length, (0, 0, 1)
    for length in (2048, 8192):
        yield f"paged window=1023 batch=16q1s{k(length)}_2q512s{k(length)} seed=3", KERNELS[:2], 18, 1040, length, (16, 2, 0)
    for step in range(0, 501, 25):
        decodes = min(4 + step // 4 + rng.randrange(9), 120)
        extends, prefills = rng.randrange(3), rng.randrange(2 if step else 3)
        tokens = decodes + extends * 1024 + prefills * rng.randrange(300, 3000)
        yield (f"paged batch=trace(AzureLLMInferenceTrace_conv.csv,step={step}) seed=1", KERNELS[:1], decodes + extends + prefills, tokens,
               6000 + rng.randrange(3000), (decodes, extends, prefills))


def measured(rng, row, naive: bool, q: int, requests: int, kv: int) -> None:
    """Times that follow from the work and a roofline, with noise."""
    fp8 = "fp8" in row["scenario"]
    flops = 4 * 128 * 32 * q * kv * (0.5 if q == kv else 1)
    data = requests * kv * 8 * 128 * 2 * (1 if fp8 else 2) + 4 * q * 32 * 128
    share = 0.06 if naive else rng.uniform(0.72, 0.9)
    seconds = max(flops / (BF16 * share), data / (READ * share)) + 4e-6
    time = seconds * 1e6
    row.update(time_us=time, time_q1_us=time * 0.98, time_q3_us=time * 1.03, time_low_us=time * 0.992, time_high_us=time * 1.008,
               samples=rng.randrange(9, 400), stop="confident", cache="cold", tflops=flops / seconds / 1e12,
               gbytes_per_s=data / seconds / 1e9, tokens_per_s=q / seconds,
               limit="read" if data / READ > flops / BF16 else "matrix", limit_percent=100 * share)


def rows(seed: int = 1, timing: bool = True, copies: int = 1) -> list[dict]:
    rng = random.Random(seed)
    result = []
    for copy in range(copies):
        for i, (scenario, kernels, requests, tokens, kv, (decodes, extends, prefills)) in enumerate(cases(rng)):
            for kernel in kernels:
                row = dict.fromkeys(HEADER, "")
                if copy:
                    scenario = scenario.replace("seed=", f"page={16 << copy % 4} seed={copy}") if "seed=" in scenario else scenario
                row.update(scenario=scenario, kernel=kernel, backend="cpu", device="Example CPU", outcome="passed", op=scenario.split()[0],
                           suite_place=f"scenarios/smoke.suite:{i + 3}:1", requests=requests, tokens=tokens, max_kv_len=kv, decodes=decodes,
                           repeat=f"assay bench '{scenario}' --kernel {kernel} --backend cpu --cache cold", extends=extends, prefills=prefills, rows_checked=min(tokens, 64), rows_total=tokens)
                ratio = min(math.exp(rng.gauss(-2.2 if "fast" in kernel else -3.5, 0.5)), 0.97)
                row.update(o_max_error=ratio * 0.002, o_ratio=ratio, o_ratio_unrounded=ratio * 0.4, lse_max_error=ratio * 3e-7, lse_ratio=ratio * 0.3,
                           o_where="0/0/3/17", lse_where="0/0/3", reference_s=0.02, case_s=0.31)
                if timing:
                    measured(rng, row, "naive" in kernel, tokens, requests, kv)
                result.append(row)
    return result


NO_OUTPUT = ("time_us", "time_q1_us", "time_q3_us", "time_low_us", "time_high_us", "samples", "stop", "tflops", "gbytes_per_s", "tokens_per_s",
             "limit", "limit_percent", "o_max_error", "o_ratio", "o_ratio_unrounded", "lse_max_error", "lse_ratio", "o_where", "lse_where", "cache")


def spoil(row: dict, outcome: str, ratio=None) -> dict:
    row.update(dict.fromkeys(NO_OUTPUT, ""), outcome=outcome, reason=REASONS[outcome])
    if ratio is not None:
        row.update(o_ratio=ratio, o_max_error=ratio * 0.002, lse_ratio=0.4, lse_max_error=1e-7, o_where="2/0/7/12", lse_where="2/0/7")
    return row


def mixed_rows(**options) -> list[dict]:
    """A run in which everything happens."""
    made = rows(**options)
    spoil(made[3], "wrong", 41.5)
    spoil(made[8], "wrong", math.inf)
    spoil(made[5], "unsupported")
    spoil(made[9], "unsupported")
    spoil(made[14], "crashed")
    spoil(made[20], "timed_out")
    spoil(made[22], "untrusted", 0.2)
    spoil(made[24], "invalid")
    return made


def run_info() -> dict:
    return {
        "schema_version": 1, "command": ["assay", "run", "smoke", "traces", "--out", "an invented run"], "suite": "smoke, traces", "seed": 1,
        "start": "2026-01-05T10:00:00+00:00", "end": "2026-01-05T10:01:13+00:00",
        "machine": {"cpu": "Example CPU 2.1 GHz", "cores": 2, "memory_bytes": 16 << 30, "os": "Linux 6.1", "governor": None},
        "compiler": "g++ 12.2.0", "commit": "0123456789ab", "kernels": list(KERNELS),
        "limits": {"read_bytes_per_s": READ, "copy_bytes_per_s": 0.7 * READ, "matrix_flops_fp32": FP32, "matrix_flops_bf16": BF16},
        "tally": {}, "columns": [{"name": n, "unit": UNITS.get(n, "us" if n.endswith("_us") else ""), "meaning": f"Meaning of {n}."} for n in HEADER]}


def write(folder: pathlib.Path, made: list[dict], info: dict | None) -> pathlib.Path:
    folder.mkdir(parents=True, exist_ok=True)
    assert set(HEADER) == set(schema.TEXT) | set(schema.NUMBERS)
    with open(folder / "rows.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, HEADER, lineterminator="\n")
        writer.writeheader()
        writer.writerows(made)
    if info is not None:
        (folder / "run.json").write_text(json.dumps(info, indent=1), encoding="utf-8")
    return folder
