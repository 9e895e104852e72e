"use strict";
// The graph filtration of a pattern: edges are dropped from the weakest; an edge of the maximum
// spanning tree that goes gives birth to a component, any other is the death of a cycle.

/** Edges of a pattern from the weakest on, each with whether the maximum spanning tree holds it. */
function filtrationOf({ weights, n, causal }) {
  const edges = [];
  for (let v = 1; v < n; v += 1) {
    for (let u = 0; u < v; u += 1) {
      const later = weights[v * n + u], earlier = weights[u * n + v];
      edges.push({ u, v, weight: causal ? later : Math.max(later, earlier), tree: false });
    }
  }
  edges.sort((one, two) => one.weight - two.weight);
  const root = Array.from({ length: n }, (_, node) => node);
  const find = (node) => {
    let at = node;
    while (root[at] !== at) at = root[at] = root[root[at]];
    return at;
  };
  for (const edge of edges.toReversed()) {
    const [one, two] = [find(edge.u), find(edge.v)];
    if (one !== two) { root[one] = two; edge.tree = true; }
  }
  return edges;
}

/** A pattern as squares with its tokens on both axes: white is 0 in the light and in the dark. */
function paintPattern(canvas, { weights, n, causal, tokens }, threshold) {
  const cell = 16, margin = 90, size = canvas.width = canvas.height = margin + n * cell;
  const pen = canvas.getContext("2d");
  pen.fillStyle = "#ffffff";
  pen.fillRect(0, 0, size, size);
  pen.fillStyle = "#000000";
  pen.font = "14px system-ui, sans-serif";
  pen.textBaseline = "middle";
  tokens.forEach((token, place) => {
    const text = token.length > 11 ? `${token.slice(0, 10)}…` : token;
    const middle = margin + (place + 0.5) * cell;
    pen.textAlign = "right";
    pen.fillText(text, margin - 4, middle);
    pen.save();
    pen.translate(middle, margin - 4);
    pen.rotate(-Math.PI / 2);
    pen.textAlign = "left";
    pen.fillText(text, 0, 0);
    pen.restore();
  });
  const largest = weights.reduce((most, value) => Math.max(most, value), 1e-9);
  for (let query = 0; query < n; query += 1) {
    for (let key = 0; key < (causal ? query + 1 : n); key += 1) {
      const weight = weights[query * n + key];
      const kept = query === key || weight > threshold;
      pen.fillStyle = kept ? "#8f2d00" : "#565b60";
      pen.globalAlpha = Math.sqrt(Math.max(0, weight) / largest) * (kept ? 1 : 0.35);
      pen.fillRect(margin + key * cell, margin + query * cell, cell, cell);
    }
  }
  pen.globalAlpha = 1;
}

/** Pattern, graph and curve of one text; returns what redraws them for a share of dropped edges. */
function filtrationPanel(place, text, options) {
  const pattern = { weights: unpacked(text.pattern), n: text.tokens.length, tokens: text.tokens, ...options };
  const edges = filtrationOf(pattern);
  const births = edges.filter((edge) => edge.tree).map((edge) => edge.weight);
  const deaths = edges.filter((edge) => !edge.tree).map((edge) => edge.weight);
  const said = element("p", { class: "state" });
  const canvas = element("canvas", { role: "img", "aria-label": `Attention pattern: ${text.text}` });
  const graph = drawn("svg", { viewBox: "-16 -16 272 272", role: "img",
    "aria-label": `Graph of the tokens: ${text.text}` });
  const curve = drawn("svg", { viewBox: "0 0 240 100", role: "img",
    "aria-label": "Births and deaths by weight" });
  const at = text.tokens.map((_, node) => {
    const angle = 2 * Math.PI * node / pattern.n - Math.PI / 2;
    return [120 + 84 * Math.cos(angle), 120 + 84 * Math.sin(angle), angle];
  });
  const lines = { rest: drawn("path", { class: "rest" }), tree: drawn("path", { class: "tree" }) };
  graph.append(lines.rest, lines.tree);
  text.tokens.forEach((token, node) => {
    const [x, y, angle] = at[node];
    const left = Math.cos(angle) < -1e-9;
    const turn = angle * 180 / Math.PI + (left ? 180 : 0);
    graph.append(drawn("circle", { class: "node", cx: x, cy: y, r: 2.6 }));
    graph.append(drawn("text", { "text-anchor": left ? "end" : "start", dy: 2.4,
      transform: `translate(${120 + 90 * Math.cos(angle)} ${120 + 90 * Math.sin(angle)}) rotate(${turn})` },
    token.length > 9 ? `${token.slice(0, 8)}…` : token));
  });
  const top = Math.sqrt(Math.max(edges.at(-1)?.weight ?? 1, 1e-9));
  const height = (weight) => 94 - 88 * Math.sqrt(Math.max(0, weight)) / top;
  const across = (rank, count) => 4 + 232 * (rank + 0.5) / Math.max(1, count);
  for (const [name, values] of [["deaths", deaths], ["births", births]]) {
    const points = values.map((w, rank) => `${across(rank, values.length)},${height(w)}`);
    curve.append(drawn("polyline", { class: name, points: points.join(" ") }));
  }
  const cut = drawn("line", { class: "cut", x1: 0, x2: 240 });
  const marks = drawn("g");
  curve.append(cut, marks);
  const title = element("h4", {}, text.role);
  place.append(element("div", { class: "panel", "data-births": births.length },
    title, element("p", {}, text.text), canvas, graph, curve, said));
  return (share) => {
    const dropped = Math.round(share * edges.length);
    const threshold = dropped ? edges[dropped - 1].weight : -1;
    const left = edges.slice(dropped);
    for (const [name, tree] of [["tree", true], ["rest", false]]) {
      lines[name].setAttribute("d", left.filter((edge) => edge.tree === tree).map((edge) =>
        `M${at[edge.u][0]} ${at[edge.u][1]}L${at[edge.v][0]} ${at[edge.v][1]}`).join(""));
    }
    const born = edges.slice(0, dropped).filter((edge) => edge.tree).length;
    const died = dropped - born;
    cut.setAttribute("y1", height(threshold));
    cut.setAttribute("y2", height(threshold));
    marks.replaceChildren(
      ...(died ? [drawn("circle", { class: "passed death", r: 2.5,
        cx: across(died - 1, deaths.length), cy: height(deaths[died - 1]) })] : []),
      ...(born ? [drawn("circle", { class: "passed", r: 3,
        cx: across(born - 1, births.length), cy: height(births[born - 1]) })] : []));
    paintPattern(canvas, pattern, threshold);
    const parts = born + 1;
    const cycles = left.length - pattern.n + parts;
    said.textContent = `${dropped} of ${edges.length} edges dropped` +
      `${dropped ? ` (weight up to ${numberText(threshold)})` : ""}: ${parts} ` +
      `component${parts > 1 ? "s" : ""}, ${cycles} cycle${cycles === 1 ? "" : "s"}; ` +
      `${born} births and ${died} deaths so far.`;
  };
}

/** The kept texts of a head, with one slider for all of them. */
function filtrationOfHead(place, patterns, options) {
  place.replaceChildren();
  const number = `texts-${Math.random().toString(36).slice(2)}`;
  const items = Map.groupBy(patterns, (text) => text.id);
  const choice = element("select", { id: number }, ...[...items.values()].map((texts, place) =>
    element("option", { value: texts[0].id }, `${place + 1}: ${texts[0].text.slice(0, 60)}`)));
  const slider = element("input", { type: "range", min: 0, max: 100, step: 0.5, value: 60,
    id: `${number}-share` });
  const panels = element("div", { class: "panels" });
  let redraw = [];
  const draw = () => redraw.forEach((one) => one(Number(slider.value) / 100));
  const show = () => {
    panels.replaceChildren();
    redraw = items.get(choice.value).map((text) => filtrationPanel(panels, text, options));
    draw();
  };
  choice.addEventListener("change", show);
  slider.addEventListener("input", draw);
  place.append(
    element("h4", {}, "The filtration: from pattern to births and deaths"),
    element("div", { class: "controls" },
      element("label", { for: number }, "Text"), choice,
      element("label", { for: `${number}-share` }, "Edges dropped, from the weakest"), slider),
    element("p", { class: "key remark" },
      element("span", { class: "born" }, "Solid: the spanning tree; dropping one of its edges is a birth."),
      element("span", { class: "died" }, "Dashed: all other edges; dropping one is a death."),
      "Squares: rows are the tokens that look, columns those looked at; the darker, the more attention."),
    panels);
  show();
}
