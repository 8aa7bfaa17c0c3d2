#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which pipeline does what on which backend: scenarios/SUPPORT.md, from the lines of today's suites and recorded runs.

Usage: support_table.py ASSAY [--check] [--record DIR RUN...]

ASSAY is the program; it lists the lines of the suites (steps, large, walks, ranks, ranks_gpu, performance_steps) as they are today. A cell counts those of them that
a run below results/ holds as passed by that pipeline on that backend, and names the first by its seed. Lines that no suite has any
more, and runs of which only totals were kept, count nothing. --check writes nothing: 1 when SUPPORT.md is not what it would be, or
scenarios/SEED_COVERAGE.md names a seed that no suite has or counts its rows wrongly. --record makes DIR of the rows.csv and run.json
of runs, without refusals and with the columns that are read here.
"""
import argparse
import collections
import csv
import difflib
import functools
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
SUITES = ("steps", "large", "walks", "ranks", "ranks_gpu", "performance_steps")
COLUMNS = ("scenario", "kernel", "backend", "device", "outcome", "time_us")
PIPELINES = {
    "aiter_fa": "vLLM's AITER flash attention (000)", "mla_prefill": "prefill of latent attention, heads unfolded (001)",
    "ixformer_fa": "iXFormer's flash attention (002)", "ixformer_dcp": "the same on ranks that share keys (002)",
    "sglang_fa": "SGLang's flash attention (003)", "aiter_mla": "vLLM's AITER latent attention, heads absorbed (004)",
    "aiter_mla_prefill": "its prefill, heads unfolded (004)", "unified": "cache_write, then one call of attention"}
CARDS = ("H200", "H100")
BACKENDS = ("CPU", "emulator", *CARDS, "2 GPUs", "4 GPUs")


class Line:
    """A canonical line: fields by name, requests as (rows, keys)."""

    def __init__(self, text: str):
        self.text = text
        words = text.split()
        self.fields = dict(word.split("=", 1) for word in words[1:])
        self.requests = []
        for group in self.fields["batch"].split("_"):
            found = re.fullmatch(r"(\d+)q(\w+?)(?:s(\w+?))?(?:p\w+)?", group)
            if found:
                rows = number(found[2])
                self.requests.append((rows, number(found[3]) if found[3] else rows))
        self.threshold = number(self.fields.get("threshold", "1"))

    def get(self, name: str, default: str = "") -> str:
        return self.fields.get(name, default)

    def heads(self) -> tuple[int, int]:
        q, _, kv = self.get("h", "32/8").partition("/")
        return int(q), int(kv or q)

    def dims(self) -> tuple[int, int]:
        qk, _, v = self.get("d", "128").partition("/")
        return int(qk), int(v or qk)

    def parts(self) -> set[str]:
        """What its requests are, by the rule of op step."""
        return {"decode" if rows <= self.threshold else "extend" if keys > rows else "prefill" for rows, keys in self.requests if rows > 0}

    def formats(self) -> set[str]:
        """K's and V's, each with its scale."""
        kv = self.get("kv", "bf16")
        return set(kv.split("/"))


def number(text: str) -> int:
    scale = {"k": 1024, "m": 1024 * 1024}.get(text[-1], 1)
    return int(text.rstrip("km")) * scale


def one(part: str):
    return lambda line: line.parts() == {part}


def has(name: str, *values: str):
    """The field is given, with one of the values (a prefix) where there are any."""
    return lambda line: name in line.fields and (not values or line.get(name).startswith(values))


def kv(*wanted: str):
    return lambda line: any(f == w or (w.endswith("*") and f.startswith(w[:-1])) for f in line.formats() for w in wanted)


def many_chunks(line: Line) -> bool:
    extends = [keys - rows for rows, keys in line.requests if rows > line.threshold and keys > rows]
    return bool(extends) and max(extends) > max(1, number(line.get("budget", "32k")) // len(extends))


FEATURES = (
    ("decodes alone, one row each", lambda l: one("decode")(l) and max(q for q, _ in l.requests) == 1),
    ("decodes of several rows (drafts of a chain)", lambda l: "decode" in l.parts() and l.threshold > 1 and "mask" not in l.fields),
    ("extends alone", one("extend")),
    ("prefills alone", one("prefill")),
    ("two or three of them in one batch", lambda l: len(l.parts()) > 1),
    ("context in several chunks", many_chunks),
    ("draft tree", lambda l: l.get("mask") == "tree" and "drafted" not in l.fields),
    ("draft decode of several branches", has("drafted")),
    ("window", has("window")),
    ("window along the path of a draft", lambda l: "window" in l.fields and l.get("mask") == "tree"),
    ("local attention in chunks", has("chunk")),
    ("position bias", has("alibi")),
    ("soft cap", has("cap")),
    ("sinks", has("sinks", "on")),
    ("cascade over a shared prefix", has("prefix")),
    ("cross attention", has("mask", "cross")),
    ("a decoder behind an encoder", has("encoder")),
    ("rows of an encoder", has("mask", "full")),
    ("page table of another pool", has("pool", "full")),
    ("nothing written (shared cache)", has("write", "off")),
    ("padding behind the batch", has("pad")),
    ("fp16", lambda l: l.get("q").startswith("fp16") or "fp16" in l.formats()),
    ("fp8 cache", kv("fp8*")),
    ("fp8 cache, scales per token", kv("fp8_e4m3:token_head")),
    ("int8 cache, given scales", kv("int8", "int8:tensor", "int8:head", "int8:channel", "int8:host")),
    ("int8 cache, scales per token", kv("int8:token_head")),
    ("Q as codes", has("q", "fp8", "int8")),
    ("fp32 output", has("out", "fp32")),
    ("heads of fewer than 64 dimensions", lambda l: l.dims()[0] < 64),
    ("heads of other dimensions in V", lambda l: l.dims()[0] != l.dims()[1] and l.get("layout") != "mla"),
    ("latent cache, 16 heads and more", lambda l: l.get("layout") == "mla" and l.heads()[0] >= 16),
    ("latent cache, fewer than 16 heads", lambda l: l.get("layout") == "mla" and l.heads()[0] < 16),
    ("Q, or K, in two tensors", has("sources", "2")),
    ("cache layout hnd", has("layout", "hnd")),
    ("cache layout x or shuffled", has("layout", "x", "shuffled")),
    ("K and V in one storage", has("storage")),
    ("layers of a model between each other", has("layers")),
    ("page table csr or token", has("table", "csr", "token")),
    ("strided operands", has("strides")),
)
REPLAYS = "replayed graphs, as a server walks"
RANKS = "ranks that share keys"


@functools.cache
def line_of(text: str) -> Line:
    return Line(text)


def lines_of(assay: str) -> dict[str, list[str]]:
    """Canonical lines of the suites, by suite."""
    lines = {}
    for suite in SUITES:
        done = subprocess.run([assay, "list", str(ROOT / "scenarios" / f"{suite}.suite")], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{assay} list {suite}: {done.stderr.strip()}")
        lines[suite] = [line for line in done.stdout.splitlines() if line.startswith("step ")]
    return lines


def backend_of(row: dict[str, str]) -> str:
    """Ranks have a device each, unless they were told to take turns (ASSAY_RANKS=host), which run.json says."""
    name, ranks = row["backend"], number(line_of(row["scenario"]).get("ranks", "1"))
    if name == "cpu":
        return "CPU"
    if name.startswith("emu"):
        return "emulator"
    card = next((c for c in CARDS if c in row.get("device", "")), "")
    return f"{ranks} GPUs" if card and ranks > 1 and not row.get("turns") else card


def pipeline_of(kernel: str) -> str:
    """The pipeline of a kernel with its own stages; others are other kernels."""
    found = re.fullmatch(r"step_(\w+?)_(cpu|gpu)", kernel)
    return found[1] if found and found[1] in PIPELINES else ""


Record = collections.namedtuple("Record", "rows walk date commit")
# A record in words: "# KERNEL on one H200 (DATE; COMMIT ...", then "LINE: passed, ...".
NOTED = re.compile(r"# (step_\w+) on one (?:NVIDIA )?(H200) \(([\d-]+); (\w+)")


def run_folder(folder: pathlib.Path) -> Record:
    info = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    with open(folder / "rows.csv", encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["scenario"].startswith("step ") and pipeline_of(row["kernel"])]
    for row in rows:
        row["turns"] = info.get("ranks") == "host"
    return Record(rows, "--walk" in (info.get("command") or []), str(info.get("start", ""))[:10], 
                  str(info.get("commit") or "")[:7] + (" with changes" if info.get("dirty") else ""))


def noted(path: pathlib.Path) -> Record | None:
    text = path.read_text(encoding="utf-8")
    head = NOTED.match(text)
    if not head:
        return None
    rows = [{"scenario": line, "kernel": head[1], "backend": "cuda", "device": head[2], "outcome": outcome, "turns": True}
            for line, outcome in re.findall(r"^(step .+): (passed|wrong|crashed|untrusted|timed_out)\b", text, re.M)]
    return Record(rows, False, head[3], head[4])


def records(root: pathlib.Path) -> dict[str, Record]:
    """What holds lines of steps, by its path below results/."""
    found = {path.parent.relative_to(root).as_posix(): run_folder(path.parent)
             for path in sorted(root.rglob("rows.csv")) if (path.parent / "run.json").exists()}
    found |= {path.relative_to(root).as_posix(): noted(path) for path in sorted(root.rglob("*.txt"))}
    return {name: record for name, record in found.items() if record and record.rows}


Cell = collections.namedtuple("Cell", "passed wrong")  # canonical lines, in the order of the suites


def cells(lines: dict[str, list[str]], runs: dict[str, Record]) -> dict[tuple[str, str, str], Cell]:
    """(pipeline, feature, backend) -> its lines."""
    place = {}
    for suite, own in lines.items():
        for at, text in enumerate(own):
            place.setdefault(text, (suite, at))
    found = collections.defaultdict(lambda: Cell({}, {}))
    for record in runs.values():
        for row in record.rows:
            pipeline, text = pipeline_of(row["kernel"]), row["scenario"]
            backend = backend_of(row)
            if not backend or text not in place or row["outcome"] == "unsupported":
                continue
            line = line_of(text)
            features = [REPLAYS] if record.walk else [name for name, holds in FEATURES if holds(line)]
            if not record.walk and number(line.get("ranks", "1")) > 1:
                features.append(RANKS)
            for feature in features:
                cell = found[pipeline, feature, backend]
                (cell.passed if row["outcome"] in ("passed", "noisy") else cell.wrong)[text] = place[text]
    return found


def lines_text(count: int) -> str:
    return f"{count} line{'' if count == 1 else 's'}"


def seed_of(text: str, suite: str) -> str:
    return ("" if suite == "steps" else f"{suite} ") + f"seed={line_of(text).get('seed', '0')}"


def cell_text(cell: Cell | None) -> str:
    if cell is None or not (cell.passed or cell.wrong):
        return ""
    text = ""
    if cell.passed:
        first = min(cell.passed, key=cell.passed.get)
        text = f"{len(cell.passed)}: {seed_of(first, cell.passed[first][0])}"
    if cell.wrong:
        first = min(cell.wrong, key=cell.wrong.get)
        text += f"{', ' if text else ''}**{len(cell.wrong)} not passed: {seed_of(first, cell.wrong[first][0])}**"
    return text


def hip_builds(root: pathlib.Path) -> set[str]:
    """Pipelines that the libraries for AMD are compiled with: all there are, where the portable sources are among theirs."""
    text = (root / "kernels/common/pipelines.cpp").read_text(encoding="utf-8")
    built = "ASSAY_GPU_ENTRY_SOURCES" in (root / "kernels/hip/CMakeLists.txt").read_text(encoding="utf-8")
    return set(re.findall(r'\{"(\w+)", &k\w+\}', text)) if built else set()


def table(lines: dict[str, list[str]], runs: dict[str, Record], builds: set[str]) -> str:
    found = cells(lines, runs)
    out = ["<!-- SPDX-License-Identifier: Apache-2.0 -->", "# What each pipeline does, and where that was seen", "",
           "Made by `scripts/support_table.py` from the lines of today's suites and the runs below; not to be edited by hand. Behaviours of the seeds,",
           "row by row: [SEED_COVERAGE.md](SEED_COVERAGE.md).", "",
           "A cell counts the lines that the pipeline passed there and names the first by its seed in [steps.suite](steps.suite) (or the suite named):",
           "`assay check scenarios/steps.suite --filter 'seed=5$' --backend emu32 --kernel 'step_aiter_fa*'` repeats those of `seed=5`. *line* is the first line in full.",
           "Empty: no recorded run has it, be it refused, not run there, or run with totals alone kept ([results](../results/README.md) tells of such).",
           "H200 and H100 are one GPU; *2 GPUs*, *4 GPUs*: a rank on each. HIP libraries (gfx942, gfx90a) are built from the same sources and have not been run",
           "on AMD hardware: *build only*. A run speaks for the code of its commit.", "", "| run | commit | date | lines of today's suites |", "| :-- | :-- | :-- | --: |"]
    known = {text for own in lines.values() for text in own}
    for name, record in runs.items():
        seen = {row["scenario"] for row in record.rows} & known
        out.append(f"| `results/{name}` | {record.commit} | {record.date} | {len(seen)} |")
    columns = [b for b in BACKENDS if any(key[2] == b for key in found)]
    never = [b for b in BACKENDS if b not in columns]
    if never:
        out += ["", f"No run of steps on {' or '.join(never)} has been recorded: there is no column for {'it' if len(never) == 1 else 'them'}."]
    for pipeline, what in PIPELINES.items():
        out += ["", f"## `step_{pipeline}_*`: {what}", "", "| feature | " + " | ".join(columns) + " | HIP | line |",
                "| :-- |" + " :-- |" * (len(columns) + 2)]
        for feature in [name for name, _ in FEATURES] + [RANKS, REPLAYS]:
            own = {b: found.get((pipeline, feature, b)) for b in columns}
            texts = [cell_text(own[b]) for b in columns]
            if not any(texts):
                continue
            passed = {text: at for cell in own.values() if cell for text, at in cell.passed.items()}
            first = f"`{min(passed, key=passed.get)}`" if passed else ""
            hip = "build only" if pipeline in builds else ""
            out.append(f"| {feature} | " + " | ".join(texts) + f" | {hip} | {first} |")
    return "\n".join(out) + "\n"


def planted_faults(root: pathlib.Path) -> set[str]:
    """Every quoted name in the sources, those of planted faults among them, and those of the emulator's edits."""
    files = [path for folder in ("harness", "kernels") for end in ("*.cpp", "*.edit") for path in (root / folder).rglob(end)]
    return {name for path in files for name in re.findall(r'(?:"|^fault )([a-z][a-z0-9_]+)\b', path.read_text(encoding="utf-8"), re.M)}


def coverage_faults(text: str, suites: pathlib.Path, planted: set[str]) -> list[str]:
    """What SEED_COVERAGE.md says and is not so: seeds of suites, planted faults (one at least where a seed is wrong: T), and the counts of its first table."""
    faults = []
    seeds = {path.stem: set(re.findall(r"\bseed=(\d+)", path.read_text(encoding="utf-8"))) for path in suites.glob("*.suite")}
    rows = [line for line in text.splitlines() if re.match(r"\| \d\.\d\d \|", line)]
    for row in rows:
        for suite, named in re.findall(r"\b([a-z_]+) seed=((?:\d+(?:, | to | and )?)+)", row):
            if suite not in seeds:
                continue
            ends = re.findall(r"\d+", named)  # of ranges both, which need not be without gaps
            faults += [f"row {row[2:6]}: {suite} has no seed={seed}" for seed in ends if seed not in seeds[suite]]
        named = [name for names in re.findall(r"\bfaults? ((?:`[a-z0-9_]+`(?:, | and )?)+)", row) for name in re.findall(r"`(\w+)`", names)]
        faults += [f"row {row[2:6]}: nothing is planted as {name}" for name in named if name not in planted]
        if "**T**" in row and not named:
            faults.append(f"row {row[2:6]}: a seed is wrong, and no fault is named that is so on purpose")
    counted = collections.Counter((row[2], row.rstrip(" |").rsplit("| ", 1)[1].strip()) for row in rows)
    for stated in re.findall(r"^\| (?:00(\d) \w+|all) \| (\d+) \| (\d+)[^|]*\| (\d+)[^|]*\| (\d+)[^|]*\| (\d+)", text, re.M):
        own = [sum(n for (seed, state), n in counted.items() if state == wanted and stated[0] in ("", seed))
               for wanted in ("yes", "part", "no", "not assay's")]
        if [int(x) for x in stated[1:]] != [sum(own), *own]:
            faults.append(f"counts of {'00' + stated[0] if stated[0] else 'all'}: rows are {sum(own)}, {own}")
    return faults


def record(folder: pathlib.Path, runs: list[str]) -> None:
    rows, info = [], {}
    for run in map(pathlib.Path, runs):
        info = json.loads((run / "run.json").read_text(encoding="utf-8"))
        with open(run / "rows.csv", encoding="utf-8", newline="") as file:
            rows += [{name: row[name] for name in COLUMNS} for row in csv.DictReader(file) if row["outcome"] != "unsupported"]
    folder.mkdir(parents=True, exist_ok=True)
    words = info.get("command") or []  # without the folder of that machine
    info["command"] = [w for at, w in enumerate(words) if w != "--out" and words[at - 1:at] != ["--out"]]
    keep = ("command", "commit", "dirty", "start", "end", "tally", "complete", "ranks")
    (folder / "run.json").write_text(json.dumps({k: info[k] for k in keep if k in info}, indent=1) + "\n", encoding="utf-8")
    with open(folder / "rows.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("assay")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--record", nargs="+", metavar="DIR")
    args = parser.parse_args(arguments)
    if args.record:
        record(pathlib.Path(args.record[0]), args.record[1:])
        return 0
    lines = lines_of(args.assay)
    path = ROOT / "scenarios/SUPPORT.md"
    text = table(lines, records(ROOT / "results"), hip_builds(ROOT))
    if not args.check:
        path.write_text(text, encoding="utf-8")
        return 0
    faults = coverage_faults((ROOT / "scenarios/SEED_COVERAGE.md").read_text(encoding="utf-8"), ROOT / "scenarios", planted_faults(ROOT))
    there = path.read_text(encoding="utf-8") if path.exists() else ""
    changed = [line for line in difflib.unified_diff(there.splitlines(), text.splitlines(), lineterm="", n=0) if not line.startswith("@@")]
    for fault in faults:
        print(f"scenarios/SEED_COVERAGE.md: {fault}")
    for line in changed[:20]:
        print(line)
    if changed:
        print("scenarios/SUPPORT.md is not what the suites and results give; run scripts/support_table.py ASSAY")
    return 1 if changed or faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
