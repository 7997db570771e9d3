// Draws a page from its data, the JSON of the element "data"; what that holds is said in report/internal/html_page.h.
"use strict";
(() => {
  const page = JSON.parse(document.getElementById("data").textContent);
  const main = document.createElement("main");
  const chosen = { layer: "", first: -Infinity, last: Infinity };  // by the filters
  const drawings = [];  // functions that draw anew: at another width, or for other filters

  // ---- elements and text

  function element(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) if (value !== null) made.setAttribute(key, value);
    made.append(...children.filter((child) => child !== null && child !== undefined));
    return made;
  }

  function digits(value) {
    const size = Math.abs(value);
    if (Number.isInteger(value) && size < 1e15) return value.toLocaleString("en-US");
    if (size >= 1e15 || size < 1e-4) return value.toExponential(2);
    const places = Math.max(0, 3 - Math.floor(Math.log10(size)));
    return value.toLocaleString("en-US", { maximumFractionDigits: places });
  }

  function bytes(value) {
    const names = ["B", "KiB", "MiB", "GiB", "TiB"];
    let at = 0;
    for (; Math.abs(value) >= 1024 && at + 1 < names.length; at++) value /= 1024;
    return `${at ? Number(value.toFixed(1)).toLocaleString("en-US") : digits(value)} ${names[at]}`;
  }

  function say(value, unit = "") {
    if (value === null || value === undefined) return "–";
    if (typeof value === "boolean") return value ? "yes" : "no";
    if (typeof value !== "number") return String(value);
    if (unit === "bytes") return bytes(value);
    if (unit === "ratio") return value.toFixed(3);
    if (unit === "share") return `${digits(100 * value)} %`;
    return unit === "" || unit === "count" ? digits(value) : `${digits(value)} ${unit}`;
  }

  // Beside an axis, where "1.000" is 1.
  const tick = (unit) => (value) => say(value, unit === "ratio" ? "" : unit);

  const pen = document.createElement("canvas").getContext("2d");
  function width_of(text) {
    pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    return pen.measureText(text).width;
  }

  const known = (values) => values.filter((value) => typeof value === "number");
  // From 0 on, unless `least` says otherwise.
  function domain(values, least = 0) {
    const most = d3.max(known(values));
    return [least, most === undefined || most <= least ? least + 1 : most];
  }

  // ---- the parts that drawings share

  // Draws now, and whenever the width or the filters change.
  function drawing(host, draw) {
    const again = (width) => {
      host.replaceChildren();
      draw(host, Math.max(220, Math.min(width || host.clientWidth, 1180)));
    };
    drawings.push(again);
    again();
  }

  const svg_of = (host, width, height) => d3.select(host).append("svg").attr("width", width).attr("height", height)
    .attr("viewBox", `0 0 ${width} ${height}`).attr("aria-hidden", "true");

  function colour(index) { return `var(--series-${index % 8})`; }
  const dashes = ["", "7 3", "2 3", "9 3 2 3"];

  function legend(names, mark) {
    return element("ul", { class: "legend" }, ...names.map((name, index) => element("li", {}, mark(index), name)));
  }
  function square(index) { return element("span", { class: "square", style: `background: ${colour(index)}` }); }
  function stroke(index) {
    const line = element("span", { class: "stroke" });
    const svg = svg_of(line, 26, 8);
    svg.append("line").attr("x2", 26).attr("y1", 4).attr("y2", 4).attr("stroke", colour(index)).attr("stroke-width", 3)
      .attr("stroke-dasharray", dashes[index % 4]);
    return line;
  }

  // The values at which an axis has labels: as many as do not touch.
  function ticks(scale, length, say_tick, across) {
    const start = Math.max(2, Math.floor(length / (across ? 45 : 32)));
    for (let count = start; count >= 1; count--) {
      let values = scale.ticks(count);
      if (scale.base && count < start) values = values.filter((value) => Number.isInteger(Math.log10(value)));
      const ends = values.map((value) => [scale(value), across ? width_of(say_tick(value)) + 10 : 16]);
      const fits = ends.every(([at, size], i) => i === 0 || Math.abs(at - ends[i - 1][0]) >= (size + ends[i - 1][1]) / 2);
      if (fits) return values;
    }
    return scale.domain();
  }
  function whole(scale) { // for an axis of steps or points
    const ticks_of = scale.ticks;
    scale.ticks = (count) => ticks_of(count).filter(Number.isInteger);
    return scale;
  }

  // Axes around a plot; both scales get their ranges. Returns the plot's group.
  function plot(host, { width, height, x, y, x_label = "", y_label = "", x_unit = "", y_unit = "", bare_x = false }) {
    const say_x = tick(x_unit), say_y = tick(y_unit);
    const top = y_label ? 24 : 8, bottom = bare_x ? 8 : x_label ? 44 : 26;
    y.range([height - bottom, top]);
    const y_ticks = ticks(y, height - top - bottom, say_y, false);
    const left = Math.ceil(d3.max(y_ticks.map((value) => width_of(say_y(value))).concat(10))) + 12;
    x.range([left, width - 14]);
    const svg = svg_of(host, width, height);
    const axis = (name, at, made) => svg.append("g").attr("class", `axis ${name}`).attr("transform", at).call(made);
    axis("y", `translate(${left},0)`, d3.axisLeft(y).tickValues(y_ticks).tickFormat(say_y).tickSize(-(width - 14 - left)));
    if (!bare_x) {
      const x_ticks = ticks(x, width - 14 - left, say_x, true);
      const g = axis("x", `translate(0,${height - bottom})`, d3.axisBottom(x).tickValues(x_ticks).tickFormat(say_x));
      g.selectAll(".tick text").each(function (value) { // the last label stays inside
        const over = x(value) + width_of(say_x(value)) / 2 - width;
        if (over > 0) d3.select(this).attr("dx", -over);
      });
    }
    if (x_label) svg.append("text").attr("class", "label").attr("x", width - 14).attr("y", height - 6).attr("text-anchor", "end").text(x_label);
    if (y_label) svg.append("text").attr("class", "label").attr("x", 0).attr("y", 12).text(y_label);
    return svg;
  }

  function level(svg, x, y, line) { // a line across the plot, such as a budget
    if (!line) return;
    const [from, to] = x.range();
    svg.append("line").attr("class", "level").attr("x1", from).attr("x2", to).attr("y1", y(line.y)).attr("y2", y(line.y));
    const above = y(line.y) > 40;
    svg.append("text").attr("class", "level").attr("x", to - 4).attr("y", y(line.y) + (above ? -5 : 15))
      .attr("text-anchor", "end").text(line.label);
  }

  // What the pointer, or the arrow keys, are at is said below the drawing. `box(column, row)` is where that lies;
  // `at(x, y)` its inverse.
  function inspect(host, { columns, rows = 1, label, at, box, text }) {
    const target = element("div", { class: "inspect", tabindex: "0", role: "img", "aria-label": `${label} Arrow keys read it out.` });
    const cursor = element("div", { class: "cursor", hidden: "" });
    const output = element("p", { class: "readout", "aria-live": "off" }, "\u00a0");
    target.append(...host.childNodes, cursor);
    host.append(target, output);
    let column = 0, row = 0;
    const show = () => {
      const [left, top, width, height] = box(column, row);
      cursor.hidden = false;
      Object.assign(cursor.style, { left: `${left}px`, top: `${top}px`, width: `${Math.max(3, width)}px`, height: `${Math.max(3, height)}px` });
      output.textContent = text(column, row);
    };
    target.addEventListener("pointermove", (event) => {
      const place = target.getBoundingClientRect();
      const found = at(event.clientX - place.left, event.clientY - place.top);
      if (!found || !(found[0] >= 0 && found[0] < columns && found[1] >= 0 && found[1] < rows)) return;
      [column, row] = found;
      show();
    });
    target.addEventListener("pointerleave", () => { cursor.hidden = true; });
    target.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
      if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      output.setAttribute("aria-live", "polite");
      column = Math.min(columns - 1, Math.max(0, column + step[0]));
      row = Math.min(rows - 1, Math.max(0, row + step[1]));
      show();
    });
  }

  // Of a drawing along an x axis: the nearest of `xs`.
  function inspect_x(host, x, y, xs, label, text) {
    const nearest = (px) => d3.scan(xs, (a, b) => Math.abs(x(a) - px) - Math.abs(x(b) - px));
    const [bottom, top] = y.range();
    inspect(host, { columns: xs.length, label, at: (px) => [nearest(px), 0], text: (column) => text(column),
      box: (column) => [x(xs[column]) - 1, top, 2, bottom - top] });
  }

  function panel(host, name) {
    const box = element("div", { class: "panel" }, name ? element("h3", {}, name) : null);
    const inner = element("div", { class: "drawing" });
    box.append(inner);
    host.append(box);
    return inner;
  }

  // The numbers behind a drawing, as a table that is made when it is opened.
  function numbers(host, name, columns, rows) {
    const details = element("details", {}, element("summary", {}, "Numbers"));
    details.addEventListener("toggle", () => {
      if (details.open && details.children.length === 1) details.append(table(columns, rows(), `${name}, numbers`));
    });
    host.append(details);
  }

  // ---- tables

  const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));

  function table(columns, rows, name) {
    const is_right = (column) => (column.align ? column.align === "right" : rows.some((row) => typeof row[column.key] === "number"));
    const body = element("tbody");
    const fill = (ordered) => body.replaceChildren(...ordered.map((row) => element("tr", {}, ...columns.map((column, index) =>
      element(index ? "td" : "th", { class: is_right(column) ? "right" : null, scope: index ? null : "row" }, say(row[column.key], column.unit))))));
    const heads = columns.map((column) => {
      const button = element("button", { type: "button" }, column.label || "\u00a0", element("span", { class: "sign", "aria-hidden": "true" }));
      const head = element("th", { scope: "col", class: is_right(column) ? "right" : null }, button);
      if (!column.label) button.setAttribute("aria-label", "name");
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const missing = rows.filter((row) => row[column.key] === null || row[column.key] === undefined);
        const present = rows.filter((row) => !missing.includes(row)).sort((a, b) => (down ? -1 : 1) * compare(a[column.key], b[column.key]));
        fill(present.concat(missing));
      });
      return head;
    });
    fill(rows);
    return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Table: ${name}` },
      element("table", {}, element("thead", {}, element("tr", {}, ...heads)), body));
  }

  // ---- kinds of sections

  const kinds = {};

  kinds.tiles = (host, section) => {
    (section.verdict || []).forEach((sentence, index) => host.append(element("p", { class: index ? "reason" : "verdict" }, sentence)));
    if (!section.tiles.length) return;
    const name = { before: section.before || "before", after: section.after || "after" };
    host.append(element("dl", { class: "tiles" }, ...section.tiles.map((tile) => {
      const both = typeof tile.before === "number" && typeof tile.after === "number";
      const value = element("dd", {});
      if (tile.before !== undefined) value.append(element("span", { class: "before" }, element("small", {}, name.before), say(tile.before, tile.unit)),
        element("span", { class: "arrow", "aria-hidden": "true" }, "→"));
      value.append(element("span", { class: "after" }, tile.before === undefined ? null : element("small", {}, name.after), say(tile.after, tile.unit)));
      if (both && tile.before !== tile.after && tile.before !== 0) {
        const change = (tile.after - tile.before) / Math.abs(tile.before);
        const good = (tile.better === "higher") === (change > 0);
        value.append(element("span", { class: `change ${good ? "good" : "bad"}` }, `${change > 0 ? "+" : "−"}${digits(Math.abs(Number((100 * change).toFixed(1))))} %`));
      }
      return element("div", {}, element("dt", {}, tile.label), value, tile.note ? element("dd", { class: "note" }, tile.note) : null);
    })));
  };

  kinds.notes = (host, section) => host.append(...section.paragraphs.map((text) => element("p", {}, text)));

  kinds.table = (host, section) => host.append(table(section.columns, section.rows, section.title));

  kinds.histogram = (host, section) => {
    const all = known([].concat(...section.series.map((series) => series.values || [])));
    let edges = section.edges;
    if (!edges) {
      const [least, most] = all.length ? d3.extent(all) : [0, 1];
      const made = d3.scaleLinear().domain(least === most ? [least - 0.5, most + 0.5] : [least, most]).nice(30);
      const [from, to] = made.domain();
      edges = d3.range(31).map((i) => from + (i * (to - from)) / 30);
    }
    const last = edges.length - 2;
    const bin = (value) => Math.min(last, Math.max(0, d3.bisectRight(edges, value) - 1));
    const counts = section.series.map((series) => series.counts || known(series.values).reduce((bins, value) => { bins[bin(value)]++; return bins; }, edges.slice(1).map(() => 0)));
    const spread = section.series.map((series) => {
      if (!series.values) return null;
      const sorted = known(series.values).slice().sort(d3.ascending);
      return [0.5, 0.95, 0.99].map((part) => sorted[Math.max(0, Math.ceil(part * sorted.length) - 1)]);
    });
    const most = d3.max([].concat(...counts)) || 1;
    section.series.forEach((series, index) => {
      const sum = d3.sum(counts[index]);
      drawing(panel(host, series.name), (inner, width) => {
        const is_last = index + 1 === section.series.length;
        const x = d3.scaleLinear().domain([edges[0], edges[edges.length - 1]]), y = d3.scaleLinear().domain([0, most]);
        const svg = plot(inner, { width, height: is_last ? 128 : 96, x, y, x_label: is_last ? section.x : "", y_label: section.y || "", x_unit: section.unit, bare_x: false });
        svg.append("g").attr("fill", colour(index)).selectAll("rect").data(counts[index]).join("rect")
          .attr("x", (_, i) => x(edges[i])).attr("width", (_, i) => Math.max(1, x(edges[i + 1]) - x(edges[i]) - 1))
          .attr("y", (count) => y(count)).attr("height", (count) => y(0) - y(count));
        (spread[index] || []).forEach((value, i) => {
          if (value === undefined) return;
          svg.append("line").attr("class", "mark").attr("x1", x(value)).attr("x2", x(value)).attr("y1", y.range()[0]).attr("y2", y.range()[1]).attr("stroke-dasharray", ["", "6 3", "2 2"][i]);
        });
        inspect(inner, { columns: counts[index].length, label: `${series.name}: ${sum} values of ${section.x || "x"}.`,
          at: (px) => [bin(x.invert(px)), 0], box: (c) => [x(edges[c]), y.range()[1], x(edges[c + 1]) - x(edges[c]), y.range()[0] - y.range()[1]],
          text: (c) => `${say(edges[c], section.unit)} to ${say(edges[c + 1], section.unit)}: ${digits(counts[index][c])} of ${digits(sum)}` });
      });
    });
    if (spread.some((each) => each))
      host.append(element("p", { class: "key" }, "Lines across: median (solid), 95 % (dashed) and 99 % (dotted) of the values are not above."),
        table([{ key: "name", label: "" }, ...["median", "95 %", "99 %"].map((label, i) => ({ key: i, label, unit: section.unit }))],
          section.series.map((series, index) => ({ name: series.name, ...(spread[index] || {}) })), section.title));
  };

  // Colours of numbers, for all panels of a section. Low is dark, high is bright; no number is grey.
  function colours(values, section) {
    const numbers_of = known(values);
    let [least, most] = numbers_of.length ? d3.extent(numbers_of) : [0, 1];
    if (section.least !== undefined) least = Math.min(section.least, least);
    if (section.log) least = Math.max(d3.min(numbers_of.filter((value) => value > 0)) || 1, most / 1e6);
    if (most <= least) most = least + (section.log ? least : 1);
    const scale = section.log ? d3.scaleLog().domain([least, most]).clamp(true) : d3.scaleLinear().domain([least, most]);
    const part = scale.copy().range([0, 1]);
    return { scale, least, most, of: (value) => (typeof value === "number" ? d3.interpolateViridis(part(Math.max(value, least))) : "#8888") };
  }

  function colour_key(colours_of, section) {
    const host = element("div", { class: "colours" });
    const strip = element("canvas", { width: "256", height: "1", "aria-hidden": "true" });
    const ink = strip.getContext("2d");
    for (let i = 0; i < 256; i++) {
      ink.fillStyle = d3.interpolateViridis(i / 255);
      ink.fillRect(i, 0, 1, 1);
    }
    host.append(element("span", {}, say(colours_of.least, section.unit)), strip, element("span", {}, say(colours_of.most, section.unit)));
    return host;
  }

  // Cells [rows][columns] of one panel on a canvas, with labels along two sides.
  function cells(inner, width, { rows, columns, value, of, row_name, column_name, unit, square_cells = false, name }) {
    const labels = d3.max(rows.map((label) => width_of(label)).concat(8));
    const left = Math.ceil(labels) + 10, bottom = 40, top = 20;
    let w = (width - left - 14) / columns.length;
    if (square_cells) w = Math.min(w, 26);
    const h = square_cells ? w : Math.max(6, Math.min(18, 320 / rows.length));
    const height = h * rows.length, scale = window.devicePixelRatio || 1;
    const wide = w * columns.length, svg = svg_of(inner, width, height + top + bottom);
    const canvas = element("canvas", { width: Math.max(1, Math.round(wide * scale)), height: Math.max(1, Math.round(height * scale)), style: `left:${left}px;top:${top}px;width:${wide}px;height:${height}px`, "aria-hidden": "true" });
    const ink = canvas.getContext("2d");
    ink.scale(canvas.width / wide, canvas.height / height);
    rows.forEach((_, row) => columns.forEach((__, column) => {
      ink.fillStyle = of(value(row, column));
      ink.fillRect(column * w, row * h, w + (w < 3 ? 0.5 : -0.5), h + (h < 3 ? 0.5 : -0.5));
    }));
    inner.append(canvas);
    const text = (x, y, label, anchor, css = "tick") => svg.append("text").attr("class", css).attr("x", x).attr("y", y).attr("text-anchor", anchor).text(label);
    const every = (count, size, need) => { let step = 1; while (step * size < need) step = step < 5 ? step + 1 : step + 5; return d3.range(0, count, step); };
    for (const row of every(rows.length, h, 15)) text(left - 6, top + (row + 0.5) * h + 4, rows[row], "end");
    const widest = d3.max(columns.map((label) => width_of(label)));
    for (const column of every(columns.length, w, widest + 10)) text(left + (column + 0.5) * w, top + height + 15, columns[column], "middle");
    text(left + wide, top + height + 34, column_name, "end", "label");
    text(0, 12, row_name, "start", "label");
    inspect(inner, { columns: columns.length, rows: rows.length, label: `${name}: ${row_name} by ${column_name}.`,
      at: (px, py) => [Math.floor((px - left) / w), Math.floor((py - top) / h)], box: (column, row) => [left + column * w, top + row * h, w, h],
      text: (column, row) => `${row_name} ${rows[row]}, ${column_name} ${columns[column]}: ${say(value(row, column), unit)}` });
  }

  const labels_of = (columns, first = 0) => (Array.isArray(columns) ? columns.map(String) : d3.range(first, first + columns).map(String));

  kinds.heat = (host, section) => {
    const row_labels = section.rows.map(String), column_labels = labels_of(section.columns, section.first);
    const of_layers = (page.filters && page.filters.layers || []).some((layer) => row_labels.includes(String(layer)));
    const of_steps = section.column === "step" || section.column === undefined;
    const all = colours([].concat(...section.panels.map((each) => [].concat(...each.values))), section);
    host.append(colour_key(all, section));
    section.panels.forEach((each) => drawing(panel(host, each.name), (inner, width) => {
      const rows = d3.range(row_labels.length).filter((row) => !of_layers || !chosen.layer || row_labels[row] === chosen.layer);
      const columns = d3.range(column_labels.length).filter((column) => !of_steps || !page.filters || (+column_labels[column] >= chosen.first && +column_labels[column] <= chosen.last));
      if (!rows.length || !columns.length) return void inner.append(element("p", {}, "Nothing of what was chosen."));
      cells(inner, width, { rows: rows.map((row) => row_labels[row]), columns: columns.map((column) => column_labels[column]), unit: section.unit, of: all.of, name: each.name || section.title,
        value: (row, column) => each.values[rows[row]][columns[column]], row_name: section.row || "layer", column_name: section.column || "step" });
    }));
    numbers(host, section.title, [{ key: "name", label: "" }, { key: "row", label: section.row || "layer" }, ...["mean", "median", "most"].map((key) => ({ key, label: key, unit: section.unit })), { key: "at", label: `at ${section.column || "step"}`, align: "right" }],
      () => [].concat(...section.panels.map((each) => each.values.map((values, row) => {
        const most = d3.max(known(values));
        return { name: each.name || "", row: row_labels[row], mean: d3.mean(known(values)), median: d3.median(known(values)), most, at: column_labels[values.indexOf(most)] };
      }))));
  };

  kinds.matrix = (host, section) => {
    const all = colours([].concat(...section.panels.map((each) => [].concat(...each.values))), { least: 0, ...section });
    const from = section.row || "from rank", to = section.column || "to rank";
    host.append(colour_key(all, section));
    const side = element("div", { class: "beside" });
    host.append(side);
    const boxes = section.panels.map((each) => panel(side, each.name)); // all there before one is as wide as it is
    section.panels.forEach((each, index) => drawing(boxes[index], (inner, width) => {
      const ranks = labels_of(each.values.length);
      cells(inner, width, { rows: ranks, columns: ranks, of: all.of, unit: section.unit, name: each.name || section.title, square_cells: true,
        value: (row, column) => each.values[row][column], row_name: from, column_name: to });
    }));
    numbers(host, section.title, [{ key: "name", label: "" }, { key: "from", label: from }, { key: "to", label: to }, { key: "value", label: "value", unit: section.unit }],
      () => [].concat(...section.panels.map((each) => [].concat(...each.values.map((row, r) => row.map((value, c) => ({ name: each.name || "", from: r, to: c, value })))))).sort((a, b) => b.value - a.value).slice(0, 400));
  };

  kinds.band = (host, section) => {
    const keys = ["most", "p95", "median", "least"];
    const all = [].concat(...section.panels.map((each) => [].concat(...keys.map((key) => each[key] || []))), section.line ? [section.line.y] : []);
    const [floor, top] = domain(all);
    const first = section.first || 0;
    host.append(element("ul", { class: "legend" }, element("li", {}, element("span", { class: "square wide" }), "least to most"), element("li", {}, element("span", { class: "square near" }), "median to 95 %"), element("li", {}, element("span", { class: "square middle" }), "median")));
    section.panels.forEach((each) => {
      const inner = panel(host, each.name);
      drawing(inner, (box, width) => {
        inner.parentNode.hidden = each.layer !== undefined ? String(each.layer) !== chosen.layer : Boolean(chosen.layer) && section.panels.some((other) => String(other.layer) === chosen.layer);
        const steps = d3.range(each.median.length).filter((step) => first + step >= chosen.first && first + step <= chosen.last);
        if (!steps.length) return void box.append(element("p", {}, "Nothing of what was chosen."));
        const [from, to] = d3.extent(steps);
        const x = whole(d3.scaleLinear().domain([first + from, first + Math.max(to, from + 1)])), y = d3.scaleLinear().domain([floor, top]).nice();
        const svg = plot(box, { width, height: 210, x, y, x_label: section.x || "step", y_label: section.y || "", y_unit: section.unit });
        const area = (low, high) => d3.area().defined((step) => typeof low[step] === "number" && typeof high[step] === "number").x((step) => x(first + step)).y0((step) => y(low[step])).y1((step) => y(high[step]))(steps);
        svg.append("path").attr("class", "band wide").attr("d", area(each.least, each.most));
        svg.append("path").attr("class", "band near").attr("d", area(each.median, each.p95));
        svg.append("path").attr("class", "band middle").attr("d", d3.line().defined((step) => typeof each.median[step] === "number").x((step) => x(first + step)).y((step) => y(each.median[step]))(steps));
        level(svg, x, y, section.line);
        inspect_x(box, x, y, steps.map((step) => first + step), `${each.name || section.title}: load of ranks over ${section.x || "steps"}.`,
          (i) => `${section.x || "step"} ${first + steps[i]}: ${keys.map((key) => `${key} ${say(each[key][steps[i]], section.unit)}`).join(", ")}`);
      });
    });
    numbers(host, section.title, [{ key: "name", label: "" }, ...keys.slice().reverse().map((key) => ({ key, label: `${key}, mean of steps`, unit: section.unit })), { key: "worst", label: "most of any step", unit: section.unit }],
      () => section.panels.map((each) => ({ name: each.name || "", ...Object.fromEntries(keys.map((key) => [key, d3.mean(known(each[key]))])), worst: d3.max(known(each.most)) })));
  };

  kinds.memory = (host, section) => {
    const all = [].concat(...section.series.map((series) => series.values));
    const shown_budget = section.budget && section.budget <= 2.5 * (d3.max(known(all)) || 0);
    const points = d3.max(section.series.map((series) => series.values.length));
    if (section.series.length > 1) host.append(legend(section.series.map((series) => series.name), stroke));
    drawing(panel(host, ""), (inner, width) => {
      const x = whole(d3.scaleLinear().domain([0, points])), y = d3.scaleLinear().domain(domain(all.concat(shown_budget ? [section.budget * 1.04] : [])));
      const names = section.marks || [];
      const svg = plot(inner, { width, height: 260, x, y, x_label: section.x || "", y_label: "bytes in use", y_unit: "bytes" });
      let free = 0;
      names.forEach((mark) => {
        const at = x(mark.at);
        svg.append("line").attr("class", "mark").attr("x1", at).attr("x2", at).attr("y1", y.range()[0]).attr("y2", y.range()[1]).attr("stroke-dasharray", "2 3");
        if (at + 3 < free || at + 3 + width_of(mark.label) > width) return;
        svg.append("text").attr("class", "tick").attr("x", at + 3).attr("y", y.range()[1] + 10).text(mark.label);
        free = at + 11 + width_of(mark.label);
      });
      const stairs = d3.line().defined(([, value]) => typeof value === "number").x(([at]) => x(at)).y(([, value]) => y(value)).curve(d3.curveStepAfter);
      section.series.forEach((series, index) => svg.append("path").attr("class", "series").attr("stroke", colour(index)).attr("stroke-dasharray", dashes[index % 4])
        .attr("d", stairs(series.values.map((value, at) => [at, value]).concat([[series.values.length, series.values[series.values.length - 1]]]))));
      if (shown_budget) level(svg, x, y, { y: section.budget, label: `budget ${bytes(section.budget)}` });
      inspect_x(inner, x, y, d3.range(points), `${section.title}: bytes over ${section.x || "the step"}.`, (i) => {
        const stretch = names.filter((mark) => mark.at <= i).pop();
        return `${i}${stretch ? ` (${stretch.label})` : ""}: ${section.series.map((series) => `${series.name} ${say(series.values[i], "bytes")}`).join(", ")}`;
      });
    });
    numbers(host, section.title, [{ key: "name", label: "" }, { key: "peak", label: "peak", unit: "bytes" }, { key: "at", label: "at" }, { key: "budget", label: "budget", unit: "bytes" }],
      () => section.series.map((series) => ({ name: series.name, peak: d3.max(known(series.values)), at: series.values.indexOf(d3.max(known(series.values))), budget: section.budget })));
    if (section.budget && !shown_budget) host.append(element("p", { class: "key" }, `The budget, ${bytes(section.budget)}, lies far above the drawing.`));
  };

  // Bars of parts, one on the other; `of(part, bar)` is [css colour, what to say, label inside]. Returns where they are.
  function bars(inner, width, { list, y, of, section, name, below = 0 }) {
    const labels = list.map((bar) => String(bar.label));
    const x = d3.scaleBand().domain(d3.range(list.length)).paddingInner(0.18).paddingOuter(0.1);
    x.ticks = () => [];
    const svg = plot(inner, { width, height: 250, x, y, x_label: below ? "" : section.x || "", y_label: section.y || "", y_unit: section.unit });
    const size = x.bandwidth(), wide = d3.max(labels.map(width_of)) + 8;
    const every = Math.max(1, Math.ceil(wide / x.step()));
    labels.forEach((label, i) => { if (i % every === 0) svg.append("text").attr("class", "tick").attr("x", x(i) + size / 2).attr("y", y.range()[0] + 16).attr("text-anchor", "middle").text(label); });
    list.forEach((bar, i) => {
      let sum = 0;
      bar.parts.forEach((part) => {
        const [fill, inside] = of(part, bar);
        const from = y(sum), to = y((sum += part.value || 0));
        svg.append("rect").attr("class", "part").attr("x", x(i)).attr("width", size).attr("y", to).attr("height", Math.max(0, from - to)).attr("fill", fill);
        if (inside && from - to > 15 && size > width_of(inside) + 4) svg.append("text").attr("class", "inside").attr("x", x(i) + size / 2).attr("y", (from + to) / 2 + 4).attr("text-anchor", "middle").text(inside);
      });
    });
    level(svg, x, y, section.line);
    return { x, svg, size };
  }

  const sum_of = (bar) => d3.sum(bar.parts, (part) => part.value || 0);
  function inspect_bars(inner, list, x, y, label, text) {
    inspect(inner, { columns: list.length, label, at: (px) => [Math.floor((px - x.range()[0]) / x.step()), 0], box: (i) => [x(i), y.range()[1], x.bandwidth(), y.range()[0] - y.range()[1]], text });
  }

  kinds.stack = (host, section) => {
    const names = [...new Set([].concat(...section.panels.map((each) => [].concat(...each.bars.map((bar) => bar.parts.map((part) => part.name))))))];
    const most = domain([].concat(...section.panels.map((each) => each.bars.map(sum_of)), section.line ? [section.line.y * 1.04] : []));
    if (names.length > 1) host.append(legend(names, square));
    section.panels.forEach((each) => drawing(panel(host, each.name), (inner, width) => {
      const y = d3.scaleLinear().domain(most).nice();
      const { x } = bars(inner, width, { list: each.bars, y, section, of: (part) => [colour(names.indexOf(part.name)), ""] });
      inspect_bars(inner, each.bars, x, y, `${each.name || section.title}: ${section.y || "sums"} by ${section.x || "bar"}.`,
        (i) => `${each.bars[i].label}: ${each.bars[i].parts.map((part) => `${part.name} ${say(part.value, section.unit)}`).join(", ")}${each.bars[i].parts.length > 1 ? `; together ${say(sum_of(each.bars[i]), section.unit)}` : ""}`);
    }));
    numbers(host, section.title, [{ key: "panel", label: "" }, { key: "bar", label: section.x || "" }, ...names.map((name) => ({ key: `of ${name}`, label: name, unit: section.unit })), { key: "sum", label: "together", unit: section.unit }],
      () => [].concat(...section.panels.map((each) => each.bars.map((bar) => ({ panel: each.name || "", bar: bar.label, sum: sum_of(bar), ...Object.fromEntries(bar.parts.map((part) => [`of ${part.name}`, part.value])) })))));
  };

  kinds.plan = (host, section) => {
    const most = domain([].concat(...section.panels.map((each) => each.ranks.map(sum_of))));
    host.append(element("ul", { class: "legend" }, element("li", {}, element("span", { class: "square own" }), "own experts"), element("li", {}, element("span", { class: "square lent" }), "experts of other ranks, by number of their rank")));
    section.panels.forEach((each) => {
      const list = each.ranks.map((rank) => ({ label: rank.rank, parts: rank.parts, rank: rank.rank }));
      const mean = d3.mean(list.map(sum_of));
      const transfers = each.transfers || [];
      drawing(panel(host, each.name), (inner, width) => {
        const y = d3.scaleLinear().domain(most).nice();
        const { x, svg, size } = bars(inner, width, { list, y, below: 1, section: { ...section, line: { y: mean, label: `mean ${say(mean, section.unit)}` } },
          of: (part, bar) => (part.owner === bar.rank ? ["var(--own)", ""] : [colour(part.owner), String(part.owner)]) });
        if (transfers.length) { // arcs below the ranks, from who lends to who borrows
          const height = 250, depth = 76, place = new Map(list.map((bar, i) => [bar.rank, x(i) + size / 2]));
          svg.attr("height", height + depth).attr("viewBox", `0 0 ${width} ${height + depth}`);
          const pairs = new Map();
          transfers.forEach((each_of) => pairs.set(`${each_of.from} ${each_of.to}`, (pairs.get(`${each_of.from} ${each_of.to}`) || 0) + 1));
          const far = d3.max([...pairs.keys()].map((key) => Math.abs(place.get(+key.split(" ")[0]) - place.get(+key.split(" ")[1])))) || 1;
          pairs.forEach((count, key) => {
            const [from, to] = key.split(" ").map((rank) => place.get(+rank)), base = height + 2;
            const dip = base + 14 + (depth - 20) * 1.25 * (Math.abs(from - to) / far);
            svg.append("path").attr("class", "travel").attr("stroke", colour(+key.split(" ")[0])).attr("stroke-width", Math.min(5, 1 + count / 2)).attr("d", `M${from},${base} C${from},${dip} ${to},${dip} ${to},${base + 7}`);
            svg.append("path").attr("fill", colour(+key.split(" ")[0])).attr("d", `M${to - 4},${base + 7} h8 l-4,-7 z`);
          });
        }
        inspect_bars(inner, list, x, y, `${each.name || section.title}: load by rank.`, (i) => `rank ${list[i].rank}: ${list[i].parts.map((part) => `${part.owner === list[i].rank ? "own experts" : `experts of rank ${part.owner}`} ${say(part.value, section.unit)}`).join(", ")}; together ${say(sum_of(list[i]), section.unit)}`);
      });
      if (transfers.length) numbers(host, `${section.title}: ${each.name}, weights that travel`, [{ key: "from", label: "from rank" }, { key: "to", label: "to rank" }, { key: "what", label: "what travels" }], () => transfers);
    });
    numbers(host, section.title, [{ key: "panel", label: "" }, { key: "rank", label: "rank" }, { key: "own", label: "own experts", unit: section.unit }, { key: "borrowed", label: "experts of others", unit: section.unit }, { key: "sum", label: "together", unit: section.unit }],
      () => [].concat(...section.panels.map((each) => each.ranks.map((bar) => {
        const own = d3.sum(bar.parts.filter((part) => part.owner === bar.rank), (part) => part.value);
        return { panel: each.name || "", rank: bar.rank, own, borrowed: sum_of(bar) - own, sum: sum_of(bar) };
      }))));
  };

  kinds.curves = (host, section) => {
    const names = [...new Set([].concat(...section.panels.map((each) => each.series.map((series) => series.name))))];
    const points = [].concat(...section.panels.map((each) => [].concat(...each.series.map((series) => series.points))));
    const span = (values, { log, zero }) => {
      const of = known(values).filter((value) => !log || value > 0);
      const [least, most] = of.length ? d3.extent(of) : [log ? 1 : 0, log ? 10 : 1];
      const from = zero && !log ? Math.min(0, least) : least;
      return from === most ? [log ? most / 2 : most - 1, log ? most * 2 : most + 1] : [from, most];
    };
    const axis = (how, values) => (how.log ? d3.scaleLog() : d3.scaleLinear()).domain(span(values, how));
    const dots = (series) => series.points.filter(([x, y]) => typeof x === "number" && typeof y === "number");
    host.append(legend(names, stroke));
    section.panels.forEach((each) => drawing(panel(host, each.name), (inner, width) => {
      const x = axis(section.x, points.map((point) => point[0])), y = axis(section.y, [].concat(...points.map((point) => point.slice(1)), section.line ? [section.line.y] : [])).nice();
      const svg = plot(inner, { width, height: 280, x, y, x_label: section.x.label, y_label: section.y.label, x_unit: section.x.unit, y_unit: section.y.unit });
      level(svg, x, y, section.line);
      each.series.forEach((series) => {
        const at = names.indexOf(series.name), list = dots(series);
        svg.append("path").attr("class", "series").attr("stroke", colour(at)).attr("stroke-dasharray", dashes[at % 4]).attr("d", d3.line().x(([px]) => x(px)).y(([, py]) => y(py))(list));
        list.forEach(([px, py, low, high]) => {
          if (typeof low === "number" && typeof high === "number") svg.append("line").attr("class", "interval").attr("stroke", colour(at)).attr("x1", x(px)).attr("x2", x(px)).attr("y1", y(low)).attr("y2", y(high));
          svg.append("circle").attr("r", 3.5).attr("fill", colour(at)).attr("cx", x(px)).attr("cy", y(py));
        });
      });
      const xs = [...new Set(each.series.flatMap((series) => dots(series).map(([px]) => px)))].sort(d3.ascending);
      if (xs.length) inspect_x(inner, x, y, xs, `${each.name || section.title}: ${section.y.label} over ${section.x.label}.`, (i) => `${say(xs[i], section.x.unit)}: ${each.series.map((series) => [series, dots(series).find(([px]) => px === xs[i])]).filter(([, found]) => found).map(([series, found]) => `${series.name} ${say(found[1], section.y.unit)}`).join(", ")}`);
    }));
    numbers(host, section.title, [{ key: "panel", label: "" }, { key: "name", label: "of" }, { key: "x", label: section.x.label, unit: section.x.unit }, { key: "y", label: section.y.label, unit: section.y.unit }],
      () => section.panels.flatMap((each) => each.series.flatMap((series) => series.points.map(([x, y]) => ({ panel: each.name || "", name: series.name, x, y })))));
  };

  // ---- the page

  function filters() {
    if (!page.filters) return null;
    const form = element("form", { class: "filters", "aria-label": "What is shown" });
    const { layers, steps } = page.filters;
    const redraw = () => drawings.forEach((again) => again());
    if (layers && layers.length > 1) {
      const select = element("select", { id: "layer" }, element("option", { value: "" }, "all"), ...layers.map((layer) => element("option", { value: layer }, String(layer))));
      select.addEventListener("change", () => { chosen.layer = select.value; redraw(); });
      form.append(element("label", {}, "Layer ", select));
    }
    if (steps && steps[1] > steps[0]) {
      const ends = [["first", "Steps from "], ["last", "to "]].map(([key, label], i) => {
        const input = element("input", { type: "number", id: `${key}-step`, min: steps[0], max: steps[1], value: steps[i], required: "" });
        input.addEventListener("change", () => { chosen[key] = input.value === "" ? (i ? Infinity : -Infinity) : Number(input.value); redraw(); });
        return element("label", {}, label, input);
      });
      form.append(...ends);
    }
    form.addEventListener("submit", (event) => event.preventDefault());
    return form.children.length ? form : null;
  }

  const with_drawing = new Set(["histogram", "heat", "band", "matrix", "memory", "stack", "plan", "curves"]);

  function start() {
    document.body.append(element("header", {}, element("h1", {}, page.title), element("p", { class: "command" }, element("code", {}, page.command)), element("p", { class: "made" }, `Made with ${page.made_with}`)));
    if (page.sections.length > 3) document.body.append(element("nav", { "aria-label": "Sections" }, element("ul", {}, ...page.sections.map((section) => element("li", {}, element("a", { href: `#${section.id}` }, section.title))))));
    document.body.append(...[filters(), main].filter(Boolean));
    for (const section of page.sections) {
      const box = element("section", { id: section.id, class: `of-${section.kind}`, "aria-labelledby": `${section.id}-title` }, element("h2", { id: `${section.id}-title` }, section.title));
      main.append(box);
      const host = with_drawing.has(section.kind) ? box.appendChild(element("figure")) : box;
      if (section.caption) host.append(element(host === box ? "p" : "figcaption", { class: "caption" }, section.caption));
      kinds[section.kind](host, section);
    }
    if (page.notes && page.notes.length) main.append(element("section", { id: "notes", "aria-labelledby": "notes-title" }, element("h2", { id: "notes-title" }, "Notes"), element("ul", {}, ...page.notes.map((note) => element("li", {}, note)))));
    let width = window.innerWidth;
    window.addEventListener("resize", () => { if (window.innerWidth !== width) requestAnimationFrame(() => { width = window.innerWidth; drawings.forEach((again) => again()); }); });
    window.addEventListener("beforeprint", () => drawings.forEach((again) => again(660)));
    window.addEventListener("afterprint", () => drawings.forEach((again) => again()));
  }
  start();
})();
