// The page: draws each section of its data by its kind. report/internal/html_page.h describes the data.
'use strict';

const page = JSON.parse(document.getElementById('data').textContent);
const filters = page.filters || {};
const chosen = {layer: '', first: -Infinity, last: Infinity};
const is_chosen = (step) => step >= chosen.first && step <= chosen.last;
const kNothing = 'There is nothing of what was chosen.';

const kinds = {};
const nameless = {key: 'panel', label: ''};

// ---- words and tables

kinds.tiles = (host, {verdict = [], before = 'before', after = 'after', tiles}) => {
  verdict.forEach((sentence, i) => host.append(element('p', {class: i ? 'reason' : 'verdict'}, sentence)));
  const value = (css, name, said) => element('span', {class: css}, name && element('small', {}, name), said);
  const change_of = (tile) => {
    if (!is_number(tile.before) || !is_number(tile.after) || !tile.before || tile.before === tile.after) return null;
    const change = (tile.after - tile.before) / Math.abs(tile.before);
    const good = (tile.better === 'higher') === (change > 0);
    if (Math.abs(change) < 0.0005) return null;
    const said = `${change > 0 ? '+' : '−'}${digits(+(100 * Math.abs(change)).toFixed(1))} %`;
    return element('span', {class: `change ${good ? 'good' : 'bad'}`}, said);
  };
  const described = (tile) => {
    const has_before = tile.before !== undefined;
    return element(
        'div', {}, element('dt', {}, tile.label),
        element('dd', {}, has_before ? value('before', before, say(tile.before, tile.unit)) : null,
                has_before ? element('span', {class: 'arrow', 'aria-hidden': 'true'}, '→') : null,
                value('after', has_before ? after : null, say(tile.after, tile.unit)), change_of(tile)),
        tile.note ? element('dd', {class: 'note'}, tile.note) : null);
  };
  if (tiles.length) host.append(element('dl', {class: 'tiles'}, ...tiles.map(described)));
};

kinds.notes = (host, {paragraphs}) => host.append(...paragraphs.map((text) => element('p', {}, text)));

kinds.table = (host, {columns, rows, title}) => host.append(table(columns, rows, title));

// ---- how values are spread

const kBins = 30;
const kQuantiles = [['median', 0.5, ''], ['95 %', 0.95, '6 3'], ['99 %', 0.99, '2 2']];

// Bins that all series share.
function bin_edges(values) {
  const [least, most] = values.length ? d3.extent(values) : [0, 1];
  const ends = least === most ? [least - 0.5, most + 0.5] : [least, most];
  const [from, to] = d3.scaleLinear().domain(ends).nice(kBins).domain();
  return d3.range(kBins + 1).map((i) => from + (i * (to - from)) / kBins);
}

// The smallest value with at least this share of all values at or below it.
function quantile(values, share) {
  const sorted = known(values).sort(d3.ascending);
  return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)];
}

kinds.histogram = (host, section) => {
  const {series, unit, title} = section;
  const edges = section.edges || bin_edges(known(series.flatMap((each) => each.values)));
  const last = edges.length - 2;
  const bin = (value) => Math.min(last, Math.max(0, d3.bisectRight(edges, value) - 1));
  const counted = ({counts, values}) => {
    if (counts) return counts;
    const bins = edges.slice(1).map(() => 0);
    known(values).forEach((value) => bins[bin(value)]++);
    return bins;
  };
  const counts = series.map(counted);
  const most = d3.max(counts.flat()) || 1;
  series.forEach(({name, values}, index) => drawing(panel(host, name), (inner, width) => {
    const label = index + 1 === series.length ? section.x : '';
    const x = d3.scaleLinear().domain(d3.extent(edges)), y = d3.scaleLinear().domain([0, most]);
    const svg = plot(inner, width, label ? 132 : 112, {scale: x, label, unit}, {scale: y, label: section.y});
    const [bottom, top] = y.range(), wide = (i) => x(edges[i + 1]) - x(edges[i]);
    counts[index].forEach((count, i) => add(svg, 'rect', {
      x: x(edges[i]), y: y(count), width: Math.max(1, wide(i) - 1), height: bottom - y(count), fill: colour(index)
    }));
    if (values && values.length)
      kQuantiles.forEach(([, share, dash]) => upright(svg, x(quantile(values, share)), [bottom, top], dash));
    inspect(inner, `${name}: how many there are, by ${section.x || 'value'}.`, {
      columns: last + 1,
      at: (pixel) => [bin(x.invert(pixel)), 0],
      box: (i) => [x(edges[i]), top, wide(i), bottom - top],
      text: (i) => `${say(edges[i], unit)} to ${say(edges[i + 1], unit)}: ${digits(counts[index][i])}`
    });
  }));
  if (section.edges) return;
  const columns = [{key: 'name', label: ''}, ...kQuantiles.map(([label], key) => ({key, label, unit}))];
  const rows = series.map(({name, values}) => ({name, ...kQuantiles.map(([, share]) => quantile(values, share))}));
  const key = 'Upright lines: median (solid), 95 % (dashed) and 99 % (dotted) of the values do not exceed them.';
  host.append(element('p', {class: 'key'}, key), table(columns, rows, title));
};

// ---- colours of cells

const labels_of = (columns, first = 0) => {
  return Array.isArray(columns) ? columns.map(String) : d3.range(first, first + columns).map(String);
};
const every = (count, size, need) => {
  const step = [1, 2, 4, 5, 8, 10, 20, 25, 50, 100, 200, 250, 500, 1000].find((each) => each * size >= need) || count;
  return d3.range(0, count, step);
};

// Cells of one panel, value(row, column), with labels along two sides.
function cells(inner, width, {name, rows, columns, row_name, column_name, square_cells}, value, colours, unit) {
  const left = widest(rows) + 10, top = 20, space = width - left - 14;
  const w = square_cells ? Math.min(26, space / columns.length) : space / columns.length;
  const h = square_cells ? w : Math.max(6, Math.min(18, 320 / rows.length));
  const wide = w * columns.length, high = h * rows.length;
  const svg = canvas_svg(inner, width, high + top + 40);
  const canvas = inner.appendChild(element('canvas', {'aria-hidden': 'true'}));
  Object.assign(canvas.style, {left: `${left}px`, top: `${top}px`, width: `${wide}px`, height: `${high}px`});
  // Whole pixels: otherwise neighbouring cells would blend at the edges.
  const pixels = window.devicePixelRatio || 1, gap = Math.min(w, h) > 10 ? 1 : 0;
  canvas.width = Math.max(1, Math.round(wide * pixels));
  canvas.height = Math.max(1, Math.round(high * pixels));
  const ink = canvas.getContext('2d');
  const at = (i, count, size) => Math.round((i * size) / count);
  rows.forEach((_, row) => columns.forEach((__, column) => {
    const x = at(column, columns.length, canvas.width), y = at(row, rows.length, canvas.height);
    const right = at(column + 1, columns.length, canvas.width), bottom = at(row + 1, rows.length, canvas.height);
    ink.fillStyle = colours.of(value(row, column));
    ink.fillRect(x, y, Math.max(1, right - x - gap), Math.max(1, bottom - y - gap));
  }));
  const text = (css, x, y, anchor, said) => add(svg, 'text', {class: css, x, y, 'text-anchor': anchor}, said);
  for (const row of every(rows.length, h, 15)) text('tick', left - 6, top + (row + 0.5) * h + 4, 'end', rows[row]);
  for (const column of every(columns.length, w, widest(columns) + 10))
    text('tick', left + (column + 0.5) * w, top + high + 15, 'middle', columns[column]);
  text('label', 0, 12, 'start', row_name);
  text('label', left + wide, top + high + 34, 'end', column_name);
  const place = (row, column) => `${row_name} ${rows[row]}, ${column_name} ${columns[column]}`;
  inspect(inner, `${name}: ${row_name} by ${column_name}.`, {
    columns: columns.length,
    rows: rows.length,
    at: (x, y) => [Math.floor((x - left) / w), Math.floor((y - top) / h)],
    box: (column, row) => [left + column * w, top + row * h, w, h],
    text: (column, row) => `${place(row, column)}: ${say(value(row, column), unit)}`
  });
}

kinds.heat = (host, section) => {
  const {panels, unit, title, row: row_name = 'layer', column: column_name = 'step'} = section;
  const all_rows = section.rows.map(String), all_columns = labels_of(section.columns, section.first);
  const by_layer = (filters.layers || []).some((layer) => all_rows.includes(String(layer)));
  const by_step = filters.steps && column_name === 'step';
  const colours = () => colour_scale(panels.flatMap(({values}) => values.flat()), section);
  drawing(host.appendChild(element('div')), (inner) => colour_key(inner, colours(), unit));
  panels.forEach(({name, values}) => drawing(panel(host, name), (inner, width) => {
    const rows = d3.range(all_rows.length).filter((i) => !by_layer || !chosen.layer || all_rows[i] === chosen.layer);
    const columns = d3.range(all_columns.length).filter((i) => !by_step || is_chosen(+all_columns[i]));
    if (!rows.length || !columns.length) return inner.append(element('p', {}, kNothing));
    const labels = {rows: rows.map((i) => all_rows[i]), columns: columns.map((i) => all_columns[i])};
    const value = (row, column) => values[rows[row]][columns[column]];
    cells(inner, width, {name: name || title, row_name, column_name, ...labels}, value, colours(), unit);
  }));
  const figures = ['mean', 'median', 'most'].map((key) => ({key, label: key, unit}));
  const at_column = {key: 'at', label: `at ${column_name}`, align: 'right'};
  const row_of = (panel, values, row) => {
    const most = d3.max(known(values)), at = all_columns[values.indexOf(most)];
    return {panel, row: all_rows[row], mean: d3.mean(known(values)), median: d3.median(known(values)), most, at};
  };
  numbers(host, title, [nameless, {key: 'row', label: row_name}, ...figures, at_column], () => panels.flatMap(({name, values}) => values.map((of_row, i) => row_of(name, of_row, i))));
};

kinds.matrix = (host, section) => {
  const {panels, unit, title, row: row_name = 'from rank', column: column_name = 'to rank'} = section;
  const colours = () => colour_scale(panels.flatMap(({values}) => values.flat()), {least: 0, ...section});
  drawing(host.appendChild(element('div')), (inner) => colour_key(inner, colours(), unit));
  row_of_panels(host, panels, []).forEach((box, i) => drawing(box, (inner, width) => {
    const {name, values} = panels[i], ranks = labels_of(values.length);
    const labels = {rows: ranks, columns: ranks, row_name, column_name, square_cells: true};
    cells(inner, width, {name: name || title, ...labels}, (row, column) => values[row][column], colours(), unit);
  }));
  const kMost = 400;
  const pairs = ({name: of_panel, values}) => {
    return values.flatMap((row, from) => row.map((value, to) => ({panel: of_panel, from, to, value})));
  };
  const columns = [{key: 'from', label: row_name}, {key: 'to', label: column_name}, {key: 'value', label: 'value', unit}];
  numbers(host, title, [nameless, ...columns],
          () => panels.flatMap(pairs).filter(({value}) => value).sort((a, b) => b.value - a.value).slice(0, kMost));
};

// ---- over steps

const kBand = ['least', 'median', 'p95', 'most'];

function band_path(x, y, low, high, steps, at_step) {
  const at = (step) => x(at_step(step));
  const defined = (step) => is_number(low[step]) && is_number(high[step]);
  return d3.area().defined(defined).x(at).y0((step) => y(low[step])).y1((step) => y(high[step]))(steps);
}

kinds.band = (host, section) => {
  const {panels, unit, title, line, first = 0, every: pool = 1, x: x_label = 'step'} = section;
  const most = d3.max([...panels.flatMap((each) => known(each.most)), line ? line.y : 0]) || 1;
  const at_step = (i) => first + pool * i;
  const has_layer = (layer) => panels.some((each) => String(each.layer) === layer);
  legend(host, ['least to most', 'median to 95 %', 'median'], (i) => square(['wide', 'near', 'middle'][i]));
  panels.forEach((each) => {
    const host_of = panel(host, each.name);
    drawing(host_of, (inner, width) => {
      const shown = has_layer(chosen.layer) ? chosen.layer : 'undefined';
      host_of.parentNode.hidden = String(each.layer) !== shown;
      const steps = d3.range(each.median.length).filter((i) => is_chosen(at_step(i)));
      if (!steps.length) return inner.append(element('p', {}, kNothing));
      const [from, to] = d3.extent(steps);
      const x = d3.scaleLinear().domain([at_step(from), at_step(Math.max(to, from + 1))]);
      const y = d3.scaleLinear().domain([0, most]).nice();
      const svg = plot(inner, width, 210, {scale: x, label: x_label, whole: true}, {scale: y, label: section.y, unit});
      add(svg, 'path', {class: 'band wide', d: band_path(x, y, each.least, each.most, steps, at_step)});
      add(svg, 'path', {class: 'band near', d: band_path(x, y, each.median, each.p95, steps, at_step)});
      add(svg, 'path', {class: 'band middle', d: band_path(x, y, each.median, each.median, steps, at_step)});
      level(svg, x, y, line);
      const text = (i) => kBand.map((key) => `${key} ${say(each[key][steps[i]], unit)}`).join(', ');
      inspect_x(inner, `${each.name || title}: ${section.y || 'values'} over ${x_label}.`, x, y,
                steps.map(at_step), (i) => `${x_label} ${at_step(steps[i])}: ${text(i)}`);
    });
  });
  const columns = kBand.map((key) => ({key, label: `${key}, mean`, unit}));
  const row_of = (each) => Object.fromEntries(kBand.map((key) => [key, d3.mean(known(each[key]))]));
  numbers(host, title, [nameless, ...columns, {key: 'worst', label: 'most of any', unit}],
          () => panels.map((each) => ({panel: each.name, ...row_of(each), worst: d3.max(known(each.most))})));
};

kinds.memory = (host, {panels, budget, title, x: x_label = ''}) => {
  const most = d3.max(panels.flatMap(({series}) => series.flatMap(({values}) => known(values)))) || 1;
  const is_near = budget && budget <= 2.5 * most;
  const names = [...new Set(panels.flatMap(({series}) => series.map(({name}) => name)))];
  if (panels.some(({series}) => series.length > 1)) legend(host, names, stroked);
  panels.forEach(({name: of_panel, series, marks = []}) => drawing(panel(host, of_panel), (inner, width) => {
    const points = d3.max(series.map(({values}) => values.length));
    const x = d3.scaleLinear().domain([0, points]);
    const y = d3.scaleLinear().domain([0, Math.max(1.04 * most, is_near ? 1.12 * budget : 0)]);
    const svg = plot(inner, width, 280, {scale: x, label: x_label, whole: true},
                     {scale: y, label: 'bytes in use', unit: 'bytes'}, marks.length ? 18 : 0);
    let free = 0; // where the next label may begin
    for (const {at, label} of marks) {
      const begin = x(at) + 2, end = begin + width_of(label);
      if (begin < free || end > width) continue;
      upright(svg, x(at), y.range(), '2 3');
      add(svg, 'text', {class: 'tick', x: begin, y: y.range()[1] - 4}, label);
      free = end + 8;
    }
    series.forEach(({name, values}) => {
      const i = names.indexOf(name);
      const stairs = [...values, values[values.length - 1]];
      const path = d3.line().defined(is_number).x((_, at) => x(at)).y(y).curve(d3.curveStepAfter);
      add(svg, 'path', {class: 'series', stroke: colour(i), 'stroke-dasharray': dashes(i), d: path(stairs)});
    });
    if (is_near) level(svg, x, y, {y: budget, label: `budget ${say_bytes(budget)}`});
    inspect_x(inner, `${of_panel || title}: bytes over ${x_label || 'the step'}.`, x, y, d3.range(points), (i) => {
      const stretch = marks.filter(({at}) => at <= i).pop();
      const held = series.map(({name, values}) => `${name} ${say(values[i], 'bytes')}`).join(', ');
      return `${i}${stretch ? ` (${stretch.label})` : ''}: ${held}`;
    });
  }));
  if (budget && !is_near)
    host.append(element('p', {class: 'key'}, `The budget, ${say_bytes(budget)}, lies far above what is drawn.`));
  const row_of = (panel, {name, values}) => {
    const peak = d3.max(known(values));
    return {panel, name, peak, at: values.indexOf(peak), budget};
  };
  const columns = [nameless, {key: 'name', label: 'of'}, {key: 'peak', label: 'peak', unit: 'bytes'},
                   {key: 'at', label: 'at point'}, {key: 'budget', label: 'budget', unit: 'bytes'}];
  numbers(host, title, columns, () => panels.flatMap(({name, series}) => series.map((each) => row_of(name, each))));
};

// ---- bars of parts

const sum_of = ({parts}) => d3.sum(parts, ({value}) => value || 0);
const most_of = (bars, line) => Math.max(d3.max(bars.map(sum_of)) || 1, line ? 1.04 * line.y : 0);

// Draws the bars [{label, parts: [{value}]}] of a section. paint(part, bar) is [colour, label inside];
// say_bar(bar) is the text read out. Returns the bars' positions.
function bars(inner, width, list, most, {name, x_label, y_label, unit, line}, paint, say_bar) {
  const gap = Math.max(0.15, 1 - (96 * list.length) / width);
  const x = d3.scaleBand().domain(d3.range(list.length)).paddingInner(gap).paddingOuter(gap / 2);
  const y = d3.scaleLinear().domain([0, most]).nice();
  const svg = plot(inner, width, 250, {scale: x, label: x_label}, {scale: y, label: y_label, unit});
  const size = x.bandwidth(), [bottom, top] = y.range(), labels = list.map(({label}) => String(label));
  const middle = (i) => x(i) + size / 2;
  for (const i of every(list.length, x.step(), widest(labels) + 8))
    add(svg, 'text', {class: 'tick', x: middle(i), y: bottom + 16, 'text-anchor': 'middle'}, labels[i]);
  list.forEach((bar, i) => {
    let sum = 0;
    bar.parts.forEach((part) => {
      const [fill, inside] = paint(part, bar), from = y(sum), to = y(sum += part.value || 0);
      const height = Math.max(0, from - to);
      add(svg, 'rect', {class: height > 3 ? 'part' : '', x: x(i), y: to, width: size, height, fill});
      if (inside && from - to > 15 && size > width_of(inside) + 4)
        add(svg, 'text', {class: 'inside', x: middle(i), y: (from + to) / 2 + 4, 'text-anchor': 'middle'}, inside);
    });
  });
  level(svg, x, y, line && {y: line.y}); // its label would overlap bars
  inspect(inner, `${name}: ${y_label || 'sums'} by ${x_label || 'bar'}.`, {
    columns: list.length,
    at: (pixel) => [Math.floor((pixel - x.range()[0]) / x.step()), 0],
    box: (i) => [x(i), top, size, bottom - top],
    text: (i) => `${labels[i]}: ${say_bar(list[i])}`
  });
  return {svg, middle};
}

kinds.stack = (host, {panels, unit, title, line, x: x_label = '', y: y_label = ''}) => {
  const names = [...new Set(panels.flatMap((each) => each.bars.flatMap(({parts}) => parts.map(({name}) => name))))];
  const most = most_of(panels.flatMap((each) => each.bars), line);
  const say_bar = (bar) => {
    const parts = bar.parts.map(({name, value}) => `${name} ${say(value, unit)}`).join(', ');
    return bar.parts.length > 1 ? `${parts}; together ${say(sum_of(bar), unit)}` : parts;
  };
  const paint = ({name}) => [colour(names.indexOf(name)), ''];
  legend(host, names.length > 1 ? names : [], filled, line);
  const labels = panels[0].bars.map(({label}) => String(label));
  row_of_panels(host, panels, labels).forEach((box, i) => drawing(box, (inner, width) => {
    const {name, bars: list} = panels[i];
    bars(inner, width, list, most, {name: name || title, x_label, y_label, unit, line}, paint, say_bar);
  }));
  const part_columns = names.map((label, i) => ({key: `part ${i}`, label, unit}));
  const row_of = (panel, bar) => {
    const parts = bar.parts.map(({name, value}) => [`part ${names.indexOf(name)}`, value]);
    return {panel, bar: bar.label, ...Object.fromEntries(parts), sum: sum_of(bar)};
  };
  numbers(host, title, [nameless, {key: 'bar', label: x_label}, ...part_columns, {key: 'sum', label: 'together', unit}],
          () => panels.flatMap((each) => each.bars.map((bar) => row_of(each.name, bar))));
};

// ---- a step's plan

const owner_colour = (rank) => colour(1 + (rank % 7)); // the first resembles that of own experts

// Arcs below the ranks, from the lender of weights to the borrower; thicker arcs are more experts.
function arcs(svg, width, transfers, place) {
  const base = 226, depth = 80, pairs = new Map();
  transfers.forEach(({from, to}) => {
    const key = `${from} ${to}`;
    pairs.set(key, {from, to, count: (pairs.get(key) || {count: 0}).count + 1});
  });
  svg.attr('height', base + depth).attr('viewBox', `0 0 ${width} ${base + depth}`);
  const far = d3.max([...pairs.values()], ({from, to}) => Math.abs(place(from) - place(to))) || 1;
  for (const {from, to, count} of pairs.values()) {
    const begin = place(from), end = place(to);
    const dip = base + 36 + (depth - 24) * 1.1 * (Math.abs(begin - end) / far);
    const d = `M${begin},${base + 18} C${begin},${dip} ${end},${dip} ${end},${base + 26}`;
    add(svg, 'path', {class: 'travel', stroke: owner_colour(from), 'stroke-width': Math.min(5, 1 + count / 2), d});
    add(svg, 'path', {fill: owner_colour(from), d: `M${end - 4},${base + 26} h8 l-4,-7 z`});
  }
}

kinds.plan = (host, {panels, unit, title, y = ''}) => {
  const bar_of = ({rank, parts}) => ({label: rank, rank, parts});
  const own_of = (bar) => d3.sum(bar.parts.filter(({owner}) => owner === bar.rank), ({value}) => value);
  const all = panels.map(({ranks}) => ranks.map(bar_of));
  const most = most_of(all.flat());
  const paint = ({owner}, {rank}) => (owner === rank ? ['var(--own)', ''] : [owner_colour(owner), String(owner)]);
  const say_bar = (bar) => {
    const whose = (owner) => (owner === bar.rank ? 'own experts' : `experts of rank ${owner}`);
    const parts = bar.parts.map(({owner, value}) => `${whose(owner)} ${say(value, unit)}`).join(', ');
    return `rank ${bar.rank}: ${parts}; together ${say(sum_of(bar), unit)}`;
  };
  const mean = d3.mean(all[0].map(sum_of)), line = {y: mean, label: `mean ${say(mean, unit)}`};
  legend(host, ['own experts', 'experts of another rank, with its number'], (i) => square(['own', 'lent'][i]), line);
  panels.forEach(({name, transfers = []}, index) => {
    const list = all[index], about = {name: name || title, unit, line};
    const y_label = `${y || 'load'} by rank`;
    drawing(panel(host, name), (inner, width) => {
      const {svg, middle} = bars(inner, width, list, most, {...about, x_label: '', y_label}, paint, say_bar);
      const place = (rank) => middle(list.findIndex((bar) => bar.rank === rank));
      if (transfers.length) arcs(svg, width, transfers, place);
    });
    const columns = [['from', 'from rank'], ['to', 'to rank'], ['what', 'what travels']];
    if (transfers.length)
      numbers(host, `${title}, ${name}`, columns.map(([key, label]) => ({key, label})), () => transfers,
              'Weights that travel');
  });
  const columns = [['own', 'own experts'], ['borrowed', 'experts of others'], ['sum', 'together']];
  numbers(host, title, [nameless, {key: 'rank', label: 'rank'}, ...columns.map(([key, label]) => ({key, label, unit}))],
          () => panels.flatMap(({name}, i) => all[i].map((bar) => {
            const own = own_of(bar), sum = sum_of(bar);
            return {panel: name, rank: bar.rank, own, borrowed: sum - own, sum};
          })));
};

// ---- curves

function curve_domain(values, {log, zero}) {
  const usable = known(values).filter((value) => !log || value > 0);
  const [least, most] = usable.length ? d3.extent(usable) : [1, 10];
  const from = zero && !log ? Math.min(0, least) : least;
  if (from < most) return [from, most];
  return log ? [most / 2, most * 2] : [most - 1, most + 1];
}

kinds.curves = (host, {panels, title, line, x, y}) => {
  const all = panels.flatMap(({series}) => series.flatMap(({points}) => points));
  const names = [...new Set(panels.flatMap(({series}) => series.map(({name}) => name)))];
  const heights = [...all.flatMap(([, ...of_point]) => of_point), ...(line ? [line.y] : [])];
  const scale = (axis, values) => (axis.log ? d3.scaleLog() : d3.scaleLinear()).domain(curve_domain(values, axis));
  const drawn = ({points}) => points.filter(([at, value]) => is_number(at) && is_number(value));
  legend(host, names, stroked);
  panels.forEach(({name, series}) => drawing(panel(host, name), (inner, width) => {
    const along = scale(x, all.map(([at]) => at)), up = scale(y, heights).nice();
    const svg = plot(inner, width, 280, {...x, scale: along}, {...y, scale: up});
    level(svg, along, up, line);
    series.forEach((each) => {
      const index = names.indexOf(each.name), stroke = colour(index);
      const d = d3.line().x(([at]) => along(at)).y(([, value]) => up(value))(drawn(each));
      add(svg, 'path', {class: 'series', stroke, 'stroke-dasharray': dashes(index), d});
      drawn(each).forEach(([at, value, low, high]) => {
        if (is_number(low) && is_number(high))
          add(svg, 'line', {class: 'interval', stroke, x1: along(at), x2: along(at), y1: up(low), y2: up(high)});
        add(svg, 'circle', {r: 3.5, fill: stroke, cx: along(at), cy: up(value)});
      });
    });
    const xs = [...new Set(series.flatMap((each) => drawn(each).map(([at]) => at)))].sort(d3.ascending);
    const text = (i) => {
      const found = series.map((each) => [each.name, drawn(each).find(([at]) => at === xs[i])]);
      const said = found.filter(([, point]) => point).map(([of, [, value]]) => `${of} ${say(value, y.unit)}`);
      return `${say(xs[i], x.unit)}: ${said.join(', ')}`;
    };
    if (xs.length) inspect_x(inner, `${name || title}: ${y.label} over ${x.label}.`, along, up, xs, text);
  }));
  numbers(host, title, [nameless, {key: 'name', label: 'of'}, {...x, key: 'x'}, {...y, key: 'y'}],
          () => panels.flatMap((each) => each.series.flatMap(
              ({name, points}) => points.map(([at, value]) => ({panel: each.name, name, x: at, y: value})))));
};

// ---- the page

function filter_form({layers = [], steps = [0, 0]}) {
  const form = element('form', {class: 'filters', 'aria-label': 'What is shown'});
  const choose = (key, value) => {
    chosen[key] = value;
    draw_all();
  };
  if (layers.length > 1) {
    const options = ['', ...layers].map((layer) => element('option', {value: layer}, String(layer) || 'all'));
    const select = element('select', {id: 'layer'}, ...options);
    select.addEventListener('change', () => choose('layer', select.value));
    form.append(element('label', {}, 'Layer ', select));
  }
  const [first, last] = steps;
  const add_end = (key, label, value, none) => {
    const input = element('input', {type: 'number', id: `${key}-step`, min: first, max: last, value});
    input.addEventListener('change', () => choose(key, input.value === '' ? none : Number(input.value)));
    form.append(element('label', {}, label, input));
  };
  if (last > first) {
    add_end('first', 'Steps from ', first, -Infinity);
    add_end('last', 'to ', last, Infinity);
  }
  form.addEventListener('submit', (event) => event.preventDefault());
  return form.children.length ? form : null;
}

function add_section(main, section) {
  const title = `${section.id}-title`, is_figure = !['tiles', 'notes', 'table'].includes(section.kind);
  const box = element('section', {id: section.id, 'aria-labelledby': title}, element('h2', {id: title}, section.title));
  main.append(box);
  const host = is_figure ? box.appendChild(element('figure')) : box;
  if (section.caption) host.append(element(is_figure ? 'figcaption' : 'p', {class: 'caption'}, section.caption));
  kinds[section.kind](host, section);
}

function start() {
  const main = element('main');
  const link = ({id, title}) => element('li', {}, element('a', {href: `#${id}`}, title));
  const links = element('nav', {'aria-label': 'Sections'}, element('ul', {}, ...page.sections.map(link)));
  const head = element('header', {}, element('h1', {}, page.title),
                       element('p', {class: 'command'}, element('code', {}, page.command)),
                       element('p', {class: 'made'}, `Made with ${page.made_with}`));
  const parts = [head, page.sections.length > 3 ? links : null, filter_form(filters), main];
  document.body.append(...parts.filter((part) => part));
  page.sections.forEach((section) => add_section(main, section));
  if (page.notes && page.notes.length) {
    const notes = element('ul', {}, ...page.notes.map((note) => element('li', {}, note)));
    const title = element('h2', {id: 'notes-title'}, 'Notes');
    main.append(element('section', {id: 'notes', 'aria-labelledby': 'notes-title'}, title, notes));
  }
  let width = window.innerWidth;
  window.addEventListener('resize', () => {
    if (window.innerWidth === width) return;
    width = window.innerWidth;
    draw_all();
  });
  dark.addEventListener('change', () => draw_all());
  window.addEventListener('beforeprint', () => draw_all(660));
  window.addEventListener('afterprint', () => draw_all());
}

start();
