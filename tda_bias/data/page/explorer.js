"use strict";
// The map of heads, and everything that is known of the one that is chosen.

const WIDTH = 400;

/** Round numbers between two, for the marks of an axis. */
function marksBetween(low, high) {
  const rough = (high - low) / 5, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((times) => times * power >= rough);
  const first = Math.ceil(low / step);
  return Array.from({ length: Math.floor(high / step) - first + 1 }, (_, n) => (first + n) * step);
}

/** Fill a place with an axis of these values below an empty drawing; returns it, and what places a value. */
function drawingIn(place, label, values, { left, height, title }) {
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const [low, high] = least < most ? [least, most] : [least - 1, most + 1];
  const at = (value) => left + (WIDTH - left - 12) * (value - low) / (high - low);
  const svg = drawn("svg", { viewBox: `0 0 ${WIDTH} ${height + 34}`, role: "img", "aria-label": label });
  svg.append(drawn("line", { class: "axis", x1: left, x2: WIDTH, y1: height, y2: height }));
  for (const value of marksBetween(low, high)) {
    svg.append(
      drawn("line", { class: "mark", x1: at(value), x2: at(value), y1: 0, y2: height }),
      drawn("text", { x: at(value), y: height + 13, "text-anchor": "middle" }, numberText(value)));
  }
  svg.append(drawn("text", { x: (left + WIDTH) / 2, y: height + 29, "text-anchor": "middle" }, title));
  place.replaceChildren(svg);
  return { svg, at };
}

class Explorer {
  constructor(place, data, number) {
    Object.assign(this, { place, data, number, head: null });
    this.category = Object.keys(data.categories)[0];
    this.build();
    this.showMap();
  }

  get of() { return this.data.categories[this.category]; }
  get map() { return this.of.maps[this.shown] ?? this.of.maps[0]; }
  name(head) {
    const { layers, heads } = this.data;
    return `L${layers[Math.floor(head / heads)]}H${head % heads}`;
  }

  build() {
    this.shown = 0;
    const id = `explorer-${this.number}`;
    const category = element("select", { id: `${id}-category` },
      ...Object.keys(this.data.categories).map((name) => element("option", { value: name }, name)));
    category.addEventListener("change", () => { this.category = category.value; this.showMap(); });
    this.switch = element("fieldset", {}, element("legend", {}, "Map:"));
    this.of.maps.forEach((map, place) => this.switch.append(element("label", {},
      element("input", { type: "radio", name: `${id}-map`, value: place, checked: place === 0,
        onchange: () => { this.shown = place; this.showMap(); } }), ` ${map.label}`)));
    this.scale = element("p", { class: "remark" });
    this.grid = element("div", { class: "map" });
    this.detail = element("div", { class: "detail", "aria-live": "polite" });
    this.groups = element("div", { class: "chart" });
    this.chance = element("div", { class: "chart" });
    this.words = element("div");
    this.ranks = element("div");
    this.texts = element("div");
    this.filtration = element("div", { class: "filtration" });
    this.groupsTitle = element("h4");
    this.place.append(
      element("div", { class: "controls" },
        element("label", { for: `${id}-category` }, "Category"), category, this.switch),
      element("div", { class: "columns" },
        element("div", {}, this.scale, this.grid),
        this.detail),
      this.filtration);
    this.detail.append(this.words,
      element("div", { class: "pair" },
        element("div", {}, this.groupsTitle, this.groups),
        element("div", {}, element("h4", {}, "This head under exchange alone"), this.chance,
          this.ranks)),
      this.texts);
    this.cells = this.buildGrid();
  }

  buildGrid() {
    const { layers, heads } = this.data;
    const cells = [];
    const row = (number, layer) => {
      const tr = element("tr", {}, element("th", { scope: "row" }, `L${number}`));
      for (let head = 0; head < heads; head += 1) {
        const place = layer * heads + head;
        const button = element("button", { type: "button", tabindex: -1, "aria-pressed": "false" });
        button.dataset.head = place;
        cells.push(button);
        tr.append(element("td", {}, button));
      }
      return tr;
    };
    const top = Array.from({ length: heads }, (_, h) => element("th", { scope: "col" }, `H${h}`));
    const table = element("table", { "aria-label": "Heads by layer; arrow keys move, Enter chooses" },
      element("thead", {}, element("tr", {}, element("td", { class: "corner" }), ...top)),
      element("tbody", {}, ...layers.map(row)));
    const headOf = (event) => event.target.closest("button")?.dataset.head;
    table.addEventListener("click", (event) => {
      if (headOf(event) !== undefined) this.choose(Number(headOf(event)));
    });
    for (const name of ["pointerover", "focusin"]) {
      table.addEventListener(name, (event) => {
        if (headOf(event) === undefined) return;
        const box = event.target.getBoundingClientRect();
        showTip(this.about(Number(headOf(event))), box.right, box.bottom - 12);
      });
    }
    for (const name of ["pointerleave", "focusout"]) table.addEventListener(name, () => showTip("", 0, 0));
    table.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: heads, ArrowUp: -heads }[event.key];
      const next = cells[Number(headOf(event)) + (step ?? NaN)];
      if (!next) return;
      event.preventDefault();
      next.focus();
    });
    this.grid.append(table);
    return cells;
  }

  about(head) {
    const { map } = this;
    return [`${this.name(head)}: ${map.label} ${numberText(map.value[head])}`,
      map.p && `p ${numberText(map.p[head])}, corrected for all heads ${numberText(map.p_max[head])}, ` +
        `q ${numberText(map.q[head])}`,
      map.noise && `map value ${numberText(map.tested[head])}; exchange alone gives ` +
        `${numberText(map.noise[head])} ± ${numberText(map.sd[head])}`,
      map.evidence && `z ${numberText(map.evidence[head])}`,
    ].filter(Boolean).join("\n");
  }

  /** The two colours between which a value lies, and how far from the first, as in printed maps. */
  shade(value, found) {
    const { scale: [low, top, chance] } = this.map, { colours } = this.data;
    const place = (from, to) => Math.min(Math.max((value - from) / (to - from), 0), 1);
    if (!found) return { between: colours.grey, share: place(low, chance ?? top) };
    if (chance === null) return { between: [colours.found[1], colours.found[1]], share: 0 };
    const share = 2 * place(chance, top);
    return share < 1 ? { between: colours.found.slice(0, 2), share }
      : { between: colours.found.slice(1), share: share - 1, dark: share > 1.2 };
  }

  showMap() {
    const { map } = this;
    const defined = map.value.filter((value) => value !== null);
    const [least, most] = [Math.min(...defined), Math.max(...defined)];
    const chance = map.scale[2];
    this.cells.forEach((cell, head) => {
      const value = map.value[head], survives = Boolean(map.survivors?.includes(head));
      const { between: [near, far], share, dark } =
        this.shade(value ?? -Infinity, survives || (chance !== null && value > chance));
      cell.style.setProperty("--near", near);
      cell.style.setProperty("--far", far);
      cell.style.setProperty("--share", `${(100 * share).toFixed(1)}%`);
      cell.classList.toggle("dark", Boolean(dark));
      cell.classList.toggle("survivor", survives);
      cell.textContent = value === null ? "–" : value.toFixed(1);
      cell.setAttribute("aria-label", `${this.name(head)} ${numberText(value)}`);
    });
    const survivors = map.survivors?.length ?? 0;
    const colours = chance === null ? "Grey, the darker the larger; orange where a head survives correction"
      : `Grey up to ${numberText(chance)}, which the largest head reaches by chance once in twenty times; orange above, or where a head survives by FDR`;
    this.scale.textContent = `${map.about} ${colours}. Values from ${numberText(least)} to ` +
      `${numberText(most)}; ${survivors} of ${this.cells.length} heads survive correction` +
      `${survivors ? " (underlined)" : ""}. Click a head, or move with the arrow keys.`;
    const first = map.value.indexOf(most);
    this.choose(this.head ?? first);
  }

  choose(head) {
    if (this.head !== null) this.cells[this.head].setAttribute("aria-pressed", "false");
    this.cells.forEach((cell) => { cell.tabIndex = -1; });
    this.head = head;
    this.cells[head].setAttribute("aria-pressed", "true");
    this.cells[head].tabIndex = 0;
    this.showWords();
    this.showGroups();
    this.showChance();
    this.showRanks();
    this.showTexts();
    const kept = this.of.patterns.filter((text) => text.head === head);
    if (kept.length) filtrationOfHead(this.filtration, kept, this.data.reading);
    else {
      this.filtration.replaceChildren(element("p", { class: "remark" }, this.of.patterns.length
        ? `Patterns were kept of ${[...new Set(this.of.patterns.map((t) => this.name(t.head)))].join(", ")}; ` +
          "`tdabias heads --keep-patterns N` keeps more."
        : "This run kept no patterns: run `tdabias heads` again with --keep-patterns."));
    }
  }

  showWords() {
    const [title, ...rest] = this.about(this.head).split("\n");
    this.words.replaceChildren(element("h3", {}, `${this.name(this.head)}, ${this.category}`),
      element("p", {}, title.replace(`${this.name(this.head)}: `, "")),
      ...rest.map((line) => element("p", { class: "remark" }, line)));
  }

  showGroups() {
    const values = this.of.values[this.map.kind];
    values.numbers ??= unpacked(values.packed);
    const heads = this.cells.length, n = this.of.groups.length;
    const at = (limit, group) => values.numbers[(limit * n + group) * heads + this.head];
    const rows = this.of.groups.map((group, place) => {
      const [value, low, high] = [0, 1, 2].map((limit) => at(limit, place));
      const interval = Number.isNaN(low) ? "no interval"
        : `95 % interval ${numberText(low)} to ${numberText(high)}`;
      const tip = `${group}: ${numberText(value)}, ${interval}, ${values.n[place]} texts`;
      return { group, tip, value, low, high };
    }).filter((row) => !Number.isNaN(row.value));
    this.groupsTitle.textContent = `Group by group, ${values.label}`;
    this.drawGroups(rows);
  }

  /** A point in a row for each group, on its interval where it has one. */
  drawGroups(rows) {
    if (!rows.length) { this.groups.replaceChildren(); return; }
    const ends = rows.flatMap(({ low, value, high }) => [low, value, high]);
    const { svg, at } = drawingIn(this.groups, "Values of the head by group",
      [0, ...ends.filter((end) => !Number.isNaN(end))],
      { left: 110, height: 18 * rows.length, title: "value, with its 95 % interval over texts" });
    svg.append(drawn("line", { class: "axis", x1: at(0), x2: at(0), y1: 0, y2: 18 * rows.length }));
    rows.forEach(({ group, tip, value, low, high }, place) => {
      const y = 18 * place + 9, row = drawn("g");
      const name = group.length > 16 ? `${group.slice(0, 15)}…` : group;
      row.append(drawn("title", {}, tip),
        drawn("text", { x: 104, y: y + 4, "text-anchor": "end" }, name));
      if (!Number.isNaN(low)) {
        row.append(drawn("line", { class: "interval", x1: at(low), x2: at(high), y1: y, y2: y }));
      }
      row.append(drawn("circle", { class: "value", cx: at(value), cy: y, r: 4 }));
      svg.append(row);
    });
  }

  /** How often exchange of labels gives which value, and the head's own. */
  showChance() {
    const { map } = this;
    map.nulls.numbers ??= unpacked(map.nulls.packed);
    const heads = this.cells.length, bins = map.nulls.numbers.length / heads - 1;
    const point = (place) => map.nulls.numbers[place * heads + this.head];
    const bars = [];
    for (let bin = 0; bin < bins; bin += 2) {
      const low = point(bin), high = point(Math.min(bin + 2, bins));
      if (high > low) bars.push({ low, high, density: 1 / (high - low) });
    }
    const value = map.tested[this.head];
    const known = value === null ? [] : [value];
    const ends = [...known, ...bars.flatMap(({ low, high }) => [low, high])];
    if (!ends.length) { this.chance.replaceChildren(); return; }
    const { svg, at } = drawingIn(this.chance, "Values under exchange of labels, and the head's own",
      ends, { left: 12, height: 150, title: "value of the map" });
    const most = Math.max(...bars.map(({ density }) => density));
    for (const { low, high, density } of bars) {
      const height = 150 * density / most;
      svg.append(drawn("rect", { class: "bar", x: at(low), width: at(high) - at(low), y: 150 - height, height }));
    }
    for (const own of known) {
      const line = drawn("line", { class: "own", x1: at(own), x2: at(own), y1: 0, y2: 150 });
      line.append(drawn("title", {}, `this head: ${numberText(own)}`));
      svg.append(line);
    }
  }

  showRanks() {
    const table = element("table", { class: "data", "aria-label": "Place in every ranking" },
      element("thead", {}, element("tr", {}, ...["ranking", "place", "value"].map((name) =>
        element("th", { scope: "col" }, name)))),
      element("tbody", {}, ...this.of.rankings.map(({ label, rank, value, of }) => element("tr", {},
        element("td", {}, label),
        element("td", { class: "number" }, rank[this.head] === null ? "–" : `${rank[this.head]} of ${of}`),
        element("td", { class: "number" }, value[this.head] === null ? "–" : numberText(value[this.head]))))));
    this.ranks.replaceChildren(element("h4", {}, "Its place in every ranking"), table);
  }

  showTexts() {
    const { item, share } = this.of.carriers[this.map.kind];
    const rows = item.map((column, place) => [column[this.head], share[place][this.head]])
      .filter(([number]) => number >= 0);
    this.texts.replaceChildren(
      element("h4", {}, "The texts that carry it most"),
      element("ol", { class: "texts" }, ...rows.map(([number, value]) => {
        const text = this.of.texts[number];
        const line = (label, said, name) => said
          ? [element("span", { class: name }, element("br"), `${label}: ${said}`)] : [];
        return element("li", {}, element("strong", {}, text.group), ` (adds ${numberText(value)})`,
          ...line("stereotype", text.stereotype, "text"),
          ...line("anti-stereotype", text.anti_stereotype, "text"),
          ...line("twin", text.twin_stereotype, "twin"));
      })));
  }
}

document.querySelectorAll(".explorer").forEach((place, number) => {
  place.explorer = new Explorer(place, sections[place.dataset.section].explorer, number);
});
document.documentElement.dataset.ready = "yes";
