"use strict";
// Tables and the box beside the pointer. Data becomes text nodes, never markup.

/** What the page holds, section by section: there before the page is loaded, and so printed. */
function readSections() {
  const base64 = document.getElementById("data").textContent;
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  return JSON.parse(new TextDecoder().decode(gunzipped(bytes)));
}
const sections = readSections();

/** An element with attributes and children; strings become text. */
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null) made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

/** The same among SVG's elements. */
function drawn(name, attributes = {}, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

/** Numbers from two bytes each; see show/page.py. */
function unpacked({ step, base64 }) {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  return Float32Array.from({ length: bytes.length / 2 }, (_, place) => {
    const whole = view.getInt16(2 * place, true);
    return whole === -32768 ? NaN : whole * step;
  });
}

function numberText(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "undefined";
  return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(digits)));
}

// -- the box beside the pointer --

const tip = document.getElementById("tip");

function showTip(text, x, y) {
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = text;
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - width - 4))}px`;
  tip.style.top = `${y + 18 + height > innerHeight ? Math.max(4, y - height - 10) : y + 18}px`;
}

// -- tables --

// Tables are printed where the page was asked to: on paper nothing can be unfolded.
addEventListener("beforeprint", () => {
  if (!document.body.classList.contains("tables")) return;
  document.querySelectorAll("#tables details.table").forEach(fillTable);
});

function csvOf({ names, columns }) {
  const cell = (value) => {
    const text = String(value ?? "");
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const rows = (columns[0] ?? []).map((_, row) => columns.map((column) => cell(column[row])));
  return [names.map(cell), ...rows].map((row) => row.join(",")).join("\n") + "\n";
}

function download(table) {
  const address = URL.createObjectURL(new Blob([csvOf(table)], { type: "text/csv" }));
  element("a", { href: address, download: `${table.name}.csv` }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

/** A table that sorts by a click on a heading. */
function tableOf({ names, columns }, label) {
  const numeric = columns.map((column) => column.every((v) => v === null || typeof v === "number"));
  const head = names.map((name, place) =>
    element("th", { scope: "col", class: numeric[place] ? "number" : null }, name));
  const body = element("tbody");
  for (let row = 0; row < (columns[0] ?? []).length; row += 1) {
    body.append(element("tr", {}, ...columns.map((column, place) => {
      const value = column[row];
      if (!numeric[place]) return element("td", {}, String(value ?? ""));
      const text = value === null ? "" : numberText(value, 4);
      return element("td", { class: "number", "data-sort": value ?? "" }, text);
    })));
  }
  const table = element("table", { class: "data sortable n-last", "aria-label": label },
    element("thead", {}, element("tr", {}, ...head)), body);
  enhanceSortableAccessibility([table]);
  return table;
}

/** Put its table into a place that has none yet. */
function fillTable(place) {
  if (place.querySelector("table")) return;
  const table = sections[place.dataset.section].tables[place.dataset.table];
  const label = place.querySelector("summary").textContent;
  place.append(
    element("p", { class: "remark" }, table.of > (table.columns[0] ?? []).length
      ? `The first ${table.columns[0].length} of ${table.of} rows; the run's file has all. ` : "",
    element("button", { class: "download", type: "button", onclick: () => download(table) },
      "Download as CSV")),
    element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label },
      tableOf(table, label)));
}

function lateTables() {
  for (const place of document.querySelectorAll("details.table")) {
    if (place.open) fillTable(place);
    place.addEventListener("toggle", () => fillTable(place));
  }
}

/** A number leads to its items: what is folded around them is opened. */
function openPlaceOf(address) {
  let place = address.startsWith("#") && document.getElementById(address.slice(1));
  for (; place; place = place.parentElement) if (place.tagName === "DETAILS") place.open = true;
}
addEventListener("click", (event) => openPlaceOf(event.target.closest("a")?.getAttribute("href") ?? ""));

addEventListener("keydown", (event) => { if (event.key === "Escape") showTip("", 0, 0); });
addEventListener("scroll", () => showTip("", 0, 0), { passive: true });
lateTables();
openPlaceOf(location.hash);
