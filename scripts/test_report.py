#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The HTML report, looked at in headless Chromium: what is in the table after sorting and filtering (by
address and by hand), that nothing is fetched, that it fits the window, that pictures show.

    /usr/bin/python3 -m pytest scripts/test_report.py
"""
import html
import html.parser
import json
import math
import pathlib
import re
import shutil
import subprocess
import sys

import matplotlib.image
import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from reporting import page, plots, rows, synthetic  # noqa: E402

CHROMIUM = next((c for c in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if c), None)
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium; run scripts/setup")
SEVERITY = {o: i for i, o in enumerate(rows.OUTCOMES)}


def build(folder: pathlib.Path, made: list[dict], info="made", pictures=True) -> pathlib.Path:
    synthetic.write(folder, made, synthetic.run_info() if info == "made" else info)
    run = rows.load(folder)
    drawn = plots.draw_all(run, folder / "report" / "plots") if pictures else []
    return page.write(run, drawn, folder / "report")


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    made = synthetic.mixed_rows()
    return build(tmp_path_factory.mktemp("mixed"), made), made


class Table(html.parser.HTMLParser):
    """Rows of #rows as {column: text}, from the DOM that the page's script left behind."""

    def __init__(self, dom: str):
        super().__init__()
        self.columns, self.rows, self.sorted, self.inside, self.cell = [], [], {}, False, None
        self.feed(dom)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag == "table" and attributes.get("id") == "rows":
            self.inside = True
        elif self.inside and tag == "th":
            self.columns.append(attributes["data-column"])
            self.sorted[attributes["data-column"]] = attributes["aria-sort"]
        elif self.inside and tag == "tr" and "data-row" in attributes:
            self.rows.append({"row": int(attributes["data-row"]), "failing": "failing" in attributes["class"]})
            self.cell = iter(self.columns)
        elif self.inside and tag == "td" and self.cell is not None:
            self.name = next(self.cell, None)
            if self.name:
                self.rows[-1][self.name] = ""

    def handle_endtag(self, tag):
        if tag == "table":
            self.inside = False
        if tag == "tr":
            self.cell = None

    def handle_data(self, text):
        if self.inside and self.cell is not None and self.rows:
            self.rows[-1][self.name] += text

    def order(self):
        return [r["row"] for r in self.rows]


def browse(index: pathlib.Path, *, address: str = "", script: str = "", size=(1280, 1600), screenshot: pathlib.Path | None = None):
    """The DOM after loading (and after `script`, whose returned value becomes data-result of <html>)."""
    if script:
        probe = index.with_name("probe.html")
        probe.write_text(index.read_text(encoding="utf-8").replace("</body>", f"""<script>window.addEventListener("load", async () => {{
            const result = await (async () => {{ {script} }})();
            document.documentElement.dataset.result = JSON.stringify(result); }});</script></body>"""), encoding="utf-8")
        index = probe
    profile = index.parent / "profile"  # its own: a shared one would be locked by another test run
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage", "--force-device-scale-factor=1",
               f"--user-data-dir={profile}", "--enable-logging=stderr", "--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=4000",
               f"--window-size={size[0]},{size[1]}", f"--screenshot={screenshot}" if screenshot else "--dump-dom", f"file://{index}{address}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90)
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert done.returncode == 0, done.stderr[-2000:]
    assert not console, console
    return done.stdout


def result_of(dom: str):
    match = re.search(r'<html[^>]* data-result="([^"]*)"', dom)
    assert match, "the test's script did not finish"
    return json.loads(html.unescape(match.group(1)))


def expected_order(made, keep, key=None, down=False):
    """Independent of the page: indices of `made`, sorted as the page promises."""
    kept = [i for i, r in enumerate(made) if keep(r)]
    if key is None:
        return sorted(kept, key=lambda i: (SEVERITY[made[i]["outcome"]], i))
    present = [i for i in kept if made[i][key] != ""]
    return sorted(present, key=lambda i: -made[i][key] if down else made[i][key]) + [i for i in kept if made[i][key] == ""]


# ---- the page in a browser

@needs_browser
@pytest.mark.parametrize("address, keep, key, down", [
    ("", lambda r: True, None, False),
    ("#sort=time_us&filter=decode&outcome=passed", lambda r: r["decodes"] > 0 and r["outcome"] == "passed", "time_us", False),
    ("#sort=-o_ratio&kernel=paged_fast", lambda r: r["kernel"] == "paged_fast", "o_ratio", True),
    ("#outcome=wrong,crashed", lambda r: r["outcome"] in ("wrong", "crashed"), None, False),
    ("#filter=FP8%20batch=8q1s4k", lambda r: "fp8" in r["scenario"] and "batch=8q1s4k" in r["scenario"], None, False),
])
def test_view_of_an_address(mixed, address, keep, key, down):
    index, made = mixed
    table = Table(browse(index, address=address))
    expected = expected_order(made, keep, key, down)
    assert 0 < len(expected) and (len(expected) < len(made) or not address)
    assert table.order() == expected
    for row in table.rows:
        source = made[row["row"]]
        assert row["scenario"] == source["scenario"] and row["kernel"] == source["kernel"]
        assert row["outcome"] == source["outcome"].replace("_", " ")
        assert row["failing"] == (source["outcome"] not in rows.FINE)
    if key:
        assert table.sorted[key] == ("descending" if down else "ascending")


@needs_browser
def test_by_hand(mixed):
    """Clicks and typing lead to the same views, and to the address that repeats them."""
    index, made = mixed
    dom = browse(index, script="""
        const column = (name) => document.querySelector(`th[data-column=${name}] button`);
        const order = () => [...document.querySelectorAll("tr.row")].map((r) => Number(r.dataset.row));
        const pause = () => new Promise((done) => setTimeout(done, 300));
        const seen = {};
        column("time_us").click(); seen.up = order();
        column("time_us").click(); seen.down = order(); seen.address = location.hash;
        column("time_us").click(); seen.none = order();
        const filter = document.getElementById("filter");
        filter.value = "prefill mask=full"; filter.dispatchEvent(new Event("input")); await pause();
        seen.filtered = order();
        [...document.querySelectorAll("#outcomes button")].find((b) => b.textContent.startsWith("passed")).click();
        seen.passed = order(); seen.both = location.hash;
        document.getElementById("reset").click(); seen.reset = order();
        document.querySelector("tr.row").click();
        seen.detail = document.querySelector("tr.detail code").textContent;
        seen.listed = document.querySelector("tr.detail dl").textContent;
        [...document.querySelectorAll("#columns input")].find((b) => b.parentNode.textContent === "samples").click();
        seen.columns = [...document.querySelectorAll("th")].map((h) => h.dataset.column);
        seen.tooltip = column("samples").title;
        return seen;""")
    seen = result_of(dom)
    everything = lambda r: True  # noqa: E731
    full = lambda r: "mask=full" in r["scenario"]  # noqa: E731
    assert seen["up"] == expected_order(made, everything, "time_us")
    assert seen["down"] == expected_order(made, everything, "time_us", True)
    assert seen["address"] == "#sort=-time_us"
    assert seen["none"] == seen["reset"] == expected_order(made, everything)
    assert seen["filtered"] == expected_order(made, full) and len(seen["filtered"]) > 0
    assert seen["passed"] == expected_order(made, lambda r: full(r) and r["outcome"] == "passed")
    assert len(seen["passed"]) < len(seen["filtered"])
    assert seen["both"] == "#filter=prefill%20mask%3Dfull&outcome=passed"
    worst = made[seen["reset"][0]]
    assert seen["detail"] == worst["repeat"]
    assert worst["reason"] in seen["listed"] and worst["suite_place"] in seen["listed"]
    assert "samples" in seen["columns"] and seen["tooltip"] == "samples: Meaning of samples."


@needs_browser
@pytest.mark.parametrize("width", [1280, 800, 500])
def test_fits_the_window_and_shows_pictures(mixed, width):
    index, _ = mixed
    seen = result_of(browse(index, size=(width, 1600), script="""
        const pictures = [...document.querySelectorAll("figure img")];
        await Promise.all(pictures.map((p) => p.decode()));
        return {wide: document.documentElement.scrollWidth, view: innerWidth, pictures: pictures.map((p) => [p.naturalWidth, p.clientWidth])};"""))
    assert seen["wide"] <= seen["view"] == width
    assert len(seen["pictures"]) == len(plots.PICTURES)
    assert all(natural > 400 and shown > 300 for natural, shown in seen["pictures"])


@needs_browser
def test_screenshot_is_not_blank(mixed, tmp_path):
    index, _ = mixed
    browse(index, size=(1280, 3600), screenshot=tmp_path / "page.png")
    image = (matplotlib.image.imread(tmp_path / "page.png")[..., :3] * 255).round().astype(int)
    assert image.shape[:2] == (3600, 1280)
    bands = image.reshape(6, 600, 1280, 3)
    for i, band in enumerate(bands):  # header, failing cases, pictures, table: every part has ink
        assert (band.sum(axis=2) < 300).mean() > 0.004, f"band {i} has no text"
    for color in ("#4477AA", "#D55E00", "#009E73"):  # a kernel's points, the wrong region's edge, passed badges
        rgb = np.array([int(color[i:i + 2], 16) for i in (1, 3, 5)])
        assert (np.abs(image - rgb).max(axis=2) <= 6).sum() > 300, color


@needs_browser
def test_texts_are_never_markup(tmp_path):
    made = synthetic.rows()[:4]
    evil = "</script><script>document.title='broken in'</script><img src=x onerror=\"document.title='broken in'\"> & 'q' \"dq\" $\\frac$"
    made[0].update(scenario="paged " + evil, kernel="k" + evil, reason=evil, outcome="wrong")
    made[1].update(outcome=evil)
    made[2].update(kernel="$\\frac$")  # short enough to stand in a picture whole
    index = build(tmp_path, made, {"suite": evil, "machine": {"cpu": evil}, "command": [evil], "columns": [{"name": "kernel", "meaning": evil}]})
    seen = result_of(browse(index, script="""return {title: document.title, images: document.querySelectorAll("img[src=x]").length,
        first: document.querySelector("tr.row td.kernel").textContent, tooltip: document.querySelector("th[data-column=kernel] button").title,
        rows: [...document.querySelectorAll("tr.row td.scenario")].map((c) => c.textContent)};"""))
    assert seen["title"] == "assay: " + evil and seen["images"] == 0
    assert seen["tooltip"] == "kernel: " + evil
    assert "paged " + evil in seen["rows"] and len(seen["rows"]) == 4


@needs_browser
def test_thousands_of_rows_come_in_portions(tmp_path):
    made = synthetic.mixed_rows(copies=83)
    assert len(made) > 5000
    seen = result_of(browse(build(tmp_path, made, pictures=False), script="""
        const count = () => document.querySelectorAll("tr.row").length;
        const seen = {first: count(), failing: document.querySelectorAll("tr.row.failing").length};
        document.getElementById("more").click(); seen.second = count();
        document.querySelector("th[data-column=time_us] button").click(); seen.sorted = count();
        seen.label = document.getElementById("count").textContent;
        return seen;"""))
    assert (seen["first"], seen["second"], seen["sorted"], seen["failing"]) == (250, 500, 250, 6)
    assert seen["label"].startswith(f"{len(made)} of {len(made)} rows")


# ---- the page without a browser

def test_one_file_that_fetches_nothing(mixed):
    index, _ = mixed
    text = index.read_text(encoding="utf-8")
    links = re.findall(r'(?:src|href|action)="([^"]*)"', re.sub(r'<script type="application/json".*?</script>', "", text, flags=re.S))
    assert links and all(link.startswith(("data:", "#")) for link in links), [x[:60] for x in links]
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|import\(", page.HERE.joinpath("page.css").read_text() + page.HERE.joinpath("page.js").read_text())


def test_failing_cases_need_no_script(mixed):
    index, made = mixed
    text = html.unescape(index.read_text(encoding="utf-8").split("<script")[0])
    for row in made:
        shown = f"<code>{row['repeat']}</code>" in text
        assert shown == (row["outcome"] not in rows.FINE), row["scenario"]
    assert "6 of 61 rows failed, in 6 of 41 cases." in text
    assert re.search(r"<b>53</b> passed.*<b>2</b> wrong.*<b>2</b> unsupported.*<b>1</b> timed out", text, re.S)


@pytest.mark.parametrize("info", [
    None, {}, {"limits": None, "machine": None, "columns": None, "kernels": None, "start": None, "command": None},
    {"limits": [], "machine": "x", "columns": {}, "kernels": 3, "start": "yesterday", "end": 4, "seed": 0},
    {"limits": {"read_bytes_per_s": None, "matrix_flops_fp32": "fast", "matrix_flops_bf16": 0}, "kernels": [{"name": "paged_fast"}, {}, None]}])
def test_whatever_run_json_lacks_is_not_recorded(tmp_path, info):
    text = build(tmp_path, synthetic.rows()[:8], info).read_text(encoding="utf-8")
    facts = text[text.index('id="facts"'):text.index('id="data"')]
    assert facts.count("not recorded") >= 10
    assert ("<dt>seed</dt><dd>0</dd>" in facts) == bool(info and info.get("seed") == 0)


def made_of(*outcomes_and_scenarios, **columns) -> list[dict]:
    made = synthetic.rows()[:len(outcomes_and_scenarios)]
    for row, (outcome, scenario) in zip(made, outcomes_and_scenarios):
        row.update(columns, outcome=outcome, scenario=scenario)
    return made


@pytest.mark.parametrize("made, sentence", [
    ([], "This run has no rows."),
    (made_of(("passed", "a"), ("passed", "a"), ("passed", "b")), "No row failed: 3 rows of 2 cases."),
    (made_of(("passed", "a"), class_note="useless"), "No row failed: 1 row of 1 case. 1 of the passed is correct but useless."),
    (made_of(("wrong", "a"), ("crashed", "a"), ("passed", "b"), ("unsupported", "c"), class_note="useless"),
     "2 of 4 rows failed, in 1 of 3 cases. 1 of the passed is correct but useless. 1 case refused by every kernel."),
])
def test_headline_tells_rows_from_cases(tmp_path, made, sentence):
    text = html.unescape(build(tmp_path, made, pictures=False).read_text(encoding="utf-8"))
    assert re.search(r'<p class="verdict [a-z]+">' + re.escape(sentence) + "</p>", text)


def test_header_says_when_what_and_where(mixed, tmp_path):
    text = html.unescape(mixed[0].read_text(encoding="utf-8"))
    about = re.search(r'<p class="about">(.*?)</p>', text)[1]
    assert about == "<span>2026-01-05 10:00:00 UTC</span><span>commit 0123456789ab</span><span>Example CPU (cpu)</span>"
    bare = build(tmp_path, made_of(("passed", "a"), device=""), {"commit": "f" * 40, "dirty": True}, pictures=False)
    assert f"<span>commit {'f' * 12} with changes</span><span>device not recorded</span>" in bare.read_text(encoding="utf-8")


def test_replayed_graphs_are_told_from_hot_calls(tmp_path):
    made = synthetic.rows()[:4]
    made[0].update(cache="hot", launch="eager")
    made[1].update(made[0], cache="hot", launch="graph")
    index = build(tmp_path, made)
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', index.read_text(encoding="utf-8"), re.S)[1])
    assert [c["shown"] for c in data["columns"] if c["name"] == "launch"] == [True]
    run = rows.load(tmp_path)
    frame = plots.timed(run)
    assert list(frame["mode"][:2]) == ["hot", "graph"] and len(set(frame.family[:2])) == 2
    assert len({plots.mode_look(m) for m in ("cold", "hot", "graph")}) == 3
    assert "launch" in (tmp_path / "report/plots/throughput.csv").read_text().splitlines()[0]


def test_another_schema_is_refused(tmp_path):
    for version in (2, "1", None, True):
        synthetic.write(tmp_path, synthetic.rows()[:1], {**synthetic.run_info(), "schema_version": version})
        with pytest.raises(rows.InputError, match="schema_version is .*this report reads 1"):
            rows.load(tmp_path)


def test_facts(mixed):
    text = html.unescape(mixed[0].read_text(encoding="utf-8"))
    for fact in ("Example CPU 2.1 GHz", "16 GiB", "73.0 s", "17.2 GB/s", "0.31 TFLOP/s", "assay run smoke traces --out 'an invented run'",
                 '<dt>governor</dt><dd class="missing">not recorded'):
        assert fact in text, fact


def test_a_run_of_an_older_version_shows_its_cases(tmp_path):
    made = synthetic.mixed_rows()
    for row in made:
        row["repeat"] = ""
    text = html.unescape(build(tmp_path, made, pictures=False).read_text(encoding="utf-8").split("<script")[0])
    assert f"<code>{made[3]['scenario']}</code>" in text


def test_texts_guarded_against_spreadsheets_are_read_back(tmp_path):
    made = synthetic.rows()[:2]
    for row, reason in zip(made, ("'=1+1", "''quoted")):
        row["reason"] = reason
    synthetic.write(tmp_path, made, None)
    assert list(rows.load(tmp_path).rows.reason) == ["=1+1", "'quoted"]


def test_numbers_survive_as_json():
    assert [page.cell(x) for x in (math.nan, math.inf, -math.inf, 3.0, 0.5, "a", None)] == [None, "inf", "-inf", 3, 0.5, "a", None]
    assert "</" not in page.safe_json(["</script>"]) and json.loads(page.safe_json(["</script>"])) == ["</script>"]
