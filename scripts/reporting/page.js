// SPDX-License-Identifier: Apache-2.0
// The table: sort, filter, columns, details, and the address that repeats a view, such as
//   index.html#sort=-time_us&filter=decode fp8&outcome=wrong,crashed&kernel=paged_fast&columns=...
// ("-" sorts downwards). Rows are drawn in portions, so thousands of them stay quick. Texts only ever
// become text nodes.
"use strict";
(() => {
  const PORTION = 250;
  const data = JSON.parse(document.getElementById("data").textContent);
  const columns = data.columns, at = Object.fromEntries(columns.map((c, i) => [c.name, i]));
  const fine = new Set(["passed", "unsupported"]);
  const searched = ["scenario", "kernel", "reason", "backend", "device", "cache", "launch", "suite_place"].map((n) => at[n]);
  const rows = data.rows.map((cells, order) => ({
    cells, order, outcome: cells[at.outcome], kernel: cells[at.kernel],
    // Batches are found by what they are, too: "decode" is in no scenario text.
    text: searched.map((i) => cells[i]).concat(kinds(cells)).join(" ").toLowerCase(),
  }));
  const find = (id) => document.getElementById(id);
  const initial = () => ({ sort: "", filter: "", kernel: "", outcome: new Set(), columns: columns.filter((c) => c.shown).map((c) => c.name) });
  let state = initial(), shown = PORTION, matching = [];

  function kinds(cells) {
    return [["decode", "decodes"], ["extend", "extends"], ["prefill", "prefills"]]
      .filter(([, column]) => cells[at[column]] > 0).map(([word]) => word);
  }
  function element(tag, properties = {}, ...children) {
    const node = Object.assign(document.createElement(tag), properties);
    node.append(...children);
    return node;
  }
  const severity = (outcome) => data.severity[outcome] ?? -1;
  const value = (x) => (x === "inf" ? Infinity : x === "-inf" ? -Infinity : x);

  const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
  function show(x, column) {
    if (x === null) return "";
    if (typeof x !== "number") return x;
    const size = Math.abs(x);
    if (column.whole || x === 0) return grouped.format(x);
    if (column.unit === "%") return x.toFixed(1);
    if (size >= 1e9 || size < 1e-3) return x.toExponential(2);
    if (size >= 1000) return grouped.format(x);
    return x.toFixed(size >= 100 ? 1 : size >= 10 ? 2 : size >= 0.1 ? 3 : size >= 0.01 ? 4 : 5);
  }
  // Long lines may break after a comma, not inside a word.
  function breakable(text) {
    return text.split(/(?<=,)/).flatMap((part) => [part, element("wbr")]);
  }

  // ---- the view and its address
  function readAddress() {
    const hash = location.hash.slice(1);
    if (hash && !hash.includes("=")) return false;  // a link to a section
    const wanted = new URLSearchParams(hash.replaceAll("+", "%2B"));
    const list = (key) => (wanted.get(key) || "").split(",").filter(Boolean);
    state = initial();
    const sort = wanted.get("sort") || "";
    if (sort.replace(/^-/, "") in at) state.sort = sort;
    state.filter = wanted.get("filter") || "";
    state.kernel = wanted.get("kernel") || "";
    state.outcome = new Set(list("outcome"));
    const chosen = list("columns").filter((n) => n in at);
    if (chosen.length) state.columns = chosen;
    return true;
  }
  function writeAddress() {
    const parts = [];
    const add = (key, text) => text && parts.push(key + "=" + encodeURIComponent(text).replaceAll("%2C", ","));
    add("sort", state.sort);
    add("filter", state.filter);
    add("kernel", state.kernel);
    add("outcome", [...state.outcome].join(","));
    if (state.columns.join() !== initial().columns.join()) add("columns", state.columns.join(","));
    history.replaceState(null, "", "#" + (parts.join("&") || "table"));
  }

  // ---- choosing rows
  function select() {
    const words = state.filter.toLowerCase().split(/\s+/).filter(Boolean);
    matching = rows.filter((row) => (!state.outcome.size || state.outcome.has(row.outcome)) &&
      (!state.kernel || row.kernel === state.kernel) && words.every((word) => row.text.includes(word)));
    const name = state.sort.replace(/^-/, ""), down = state.sort.startsWith("-") ? -1 : 1, i = at[name];
    const text = new Intl.Collator("en", { numeric: true });
    matching.sort((a, b) => {
      if (!name) return severity(a.outcome) - severity(b.outcome) || a.order - b.order;  // failing first
      const x = value(a.cells[i]), y = value(b.cells[i]);
      const noX = x === null || x === "", noY = y === null || y === "";
      if (noX || noY) return noX - noY || a.order - b.order;  // missing last, both ways
      const by = name === "outcome" ? severity(x) - severity(y) : columns[i].number ? (x < y ? -1 : x > y ? 1 : 0) : text.compare(x, y);
      return by * down || a.order - b.order;
    });
  }

  // ---- drawing
  function drawHead() {
    const line = element("tr");
    for (const name of state.columns) {
      const column = columns[at[name]];
      const sorted = state.sort === name ? "ascending" : state.sort === "-" + name ? "descending" : "none";
      const mark = sorted === "ascending" ? " \u25b2" : sorted === "descending" ? " \u25bc" : "";
      const button = element("button", { title: `${name}: ${column.meaning || "meaning not recorded"}`, onclick: () => update({ sort: nextSort(name) }) },
        column.label.replaceAll("_", " ") + mark, element("small", {}, column.unit));
      const head = element("th", { className: column.number ? "number" : "", scope: "col" }, button);
      head.setAttribute("aria-sort", sorted);
      head.dataset.column = name;
      line.append(head);
    }
    document.querySelector("#rows thead").replaceChildren(line);
  }
  function nextSort(name) {
    return state.sort === name ? "-" + name : state.sort === "-" + name ? "" : name;
  }
  function drawRow(row) {
    const line = element("tr", { className: fine.has(row.outcome) ? "row" : "row failing", tabIndex: 0 });
    line.dataset.row = row.order;
    for (const name of state.columns) {
      const column = columns[at[name]], x = row.cells[at[name]];
      const cell = element("td", { className: column.number ? "number" : name });
      if (name === "outcome") {
        const badge = element("span", { className: "badge" }, (x || "no outcome").replaceAll("_", " "));
        badge.style.background = data.colors[x] || "#000";
        cell.append(badge);
      } else {
        cell.append(...(name === "scenario" ? breakable(x) : [show(x, column)]));
        if (typeof x === "number") cell.title = String(x);
      }
      line.append(cell);
    }
    const toggle = () => {
      if (line.nextSibling?.className === "detail") line.nextSibling.remove();
      else line.after(detail(row));
    };
    line.onclick = () => String(getSelection()) || toggle();
    line.onkeydown = (event) => {
      if (event.key === "Enter") toggle();
    };
    return line;
  }
  function detail(row) {
    const list = element("dl");
    columns.forEach((column, i) => {
      if (row.cells[i] === null || row.cells[i] === "" || column.name === "repeat") return;
      const entry = element("div", { title: column.meaning }, element("dt", {}, column.name),
        element("dd", {}, String(row.cells[i]) + (column.unit ? " " + column.unit : "")));
      list.append(entry);
    });
    const repeat = row.cells[at.repeat];
    if (!repeat) return element("tr", { className: "detail" }, element("td", { colSpan: state.columns.length }, list));
    const copy = element("button", { className: "copy" }, "copy");
    copy.dataset.text = repeat;
    const command = element("p", { className: "command" }, element("code", {}, repeat), copy);
    return element("tr", { className: "detail" }, element("td", { colSpan: state.columns.length }, command, list));
  }
  function drawRows() {
    document.querySelector("#rows tbody").replaceChildren(...matching.slice(0, shown).map(drawRow));
    drawMore();
  }
  function drawMore() {
    const left = matching.length - shown;
    find("more").hidden = left <= 0;
    find("more").textContent = `show ${Math.min(left, PORTION)} more (${left} not shown)`;
    const sorted = state.sort ? "" : ", failing first";
    find("count").textContent = `${matching.length} of ${rows.length} rows${sorted}. Click a heading to sort, a row for all its columns and the command that repeats it.`;
  }
  function drawControls() {
    if (find("filter").value !== state.filter) find("filter").value = state.filter;
    find("kernel").value = state.kernel;
    const counts = {};
    for (const row of rows) counts[row.outcome] = (counts[row.outcome] || 0) + 1;
    const chips = Object.keys(counts).sort((a, b) => severity(a) - severity(b)).map((outcome) => {
      const dot = element("i");
      dot.style.background = data.colors[outcome] || "#000";
      const chip = element("button", {
        onclick: () => {
          const chosen = new Set(state.outcome);
          if (!chosen.delete(outcome)) chosen.add(outcome);
          update({ outcome: chosen });
        },
      }, dot, `${(outcome || "no outcome").replaceAll("_", " ")} ${counts[outcome]}`);
      chip.setAttribute("aria-pressed", state.outcome.has(outcome));
      return chip;
    });
    find("outcomes").replaceChildren(...chips);
    find("columns").replaceChildren(...columns.map((column) => {
      const box = element("input", { type: "checkbox", checked: state.columns.includes(column.name) });
      box.onchange = () => {
        const chosen = columns.map((c) => c.name).filter((n) => (n === column.name ? box.checked : state.columns.includes(n)));
        if (chosen.length) update({ columns: chosen });
        else box.checked = true;  // a table without columns shows nothing to click
      };
      return element("label", { title: column.meaning }, box, column.name);
    }));
  }
  function draw() {
    shown = PORTION;
    select();
    drawControls();
    drawHead();
    drawRows();
  }
  function update(change) {
    Object.assign(state, change);
    writeAddress();
    draw();
  }

  // ---- events
  let typing;
  find("filter").oninput = () => {
    clearTimeout(typing);
    typing = setTimeout(() => update({ filter: find("filter").value }), 120);
  };
  find("kernel").onchange = () => update({ kernel: find("kernel").value });
  find("reset").onclick = () => update(initial());
  find("more").onclick = () => {
    document.querySelector("#rows tbody").append(...matching.slice(shown, shown + PORTION).map(drawRow));
    shown += PORTION;
    drawMore();
  };
  document.addEventListener("click", async (event) => {
    const button = event.target.closest?.("button.copy");
    if (!button) return;
    event.stopPropagation();
    let done = true;
    try {
      await navigator.clipboard.writeText(button.dataset.text);
    } catch {  // no permission from a file: the older way
      const area = element("textarea", { value: button.dataset.text });
      document.body.append(area);
      area.select();
      done = document.execCommand("copy");
      area.remove();
    }
    button.textContent = done ? "copied" : "select and copy";
    setTimeout(() => (button.textContent = "copy"), 1500);
  });
  window.addEventListener("hashchange", () => readAddress() && draw());

  readAddress();
  draw();
  // Who was sent a view wants the table, not what stands above it.
  if (location.hash.includes("=")) document.querySelector("main").prepend(find("table"));
})();
