// What all drawings of a page share: elements, number formats, tables, axes, and reading out values.
'use strict';

// ---- elements

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes))
    if (value !== null) made.setAttribute(key, value);
  made.append(...children.filter((child) => child !== null));
  return made;
}

// Adds an SVG element to a d3 selection.
function add(group, name, attributes, text) {
  const made = group.append(name);
  for (const [key, value] of Object.entries(attributes)) made.attr(key, value);
  return text === undefined ? made : made.text(text);
}

function canvas_svg(host, width, height) {
  const box = `0 0 ${width} ${height}`;
  return add(d3.select(host), 'svg', {width, height, viewBox: box, 'aria-hidden': 'true'});
}

// ---- numbers

const has_value = (value) => value !== null && value !== undefined && value !== '';
const is_number = (value) => typeof value === 'number';
const known = (values) => values.filter(is_number);

function digits(value) {
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e15) return value.toLocaleString('en-US');
  if (size >= 1e15 || size < 1e-4) return value.toExponential(2);
  const places = Math.max(0, 3 - Math.floor(Math.log10(size)));
  return value.toLocaleString('en-US', {maximumFractionDigits: places});
}

function say_bytes(value, places = 1) {
  const names = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let at = 0;
  for (; Math.abs(value) >= 1024 && at + 1 < names.length; at++) value /= 1024;
  return `${at ? value.toFixed(places) : digits(value)} ${names[at]}`;
}

// Formats a value of a document in its unit.
function say(value, unit = '') {
  if (!has_value(value)) return '–';
  if (typeof value === 'boolean') return value ? 'yes' : 'no';
  if (!is_number(value)) return String(value);
  if (unit === 'bytes') return say_bytes(value);
  if (unit === 'ratio') return value.toFixed(3);
  if (unit === 'share') return `${+(100 * value).toFixed(Math.abs(value) < 0.1 ? 2 : 1)} %`;
  return unit === '' || unit === 'count' ? digits(value) : `${digits(value)} ${unit}`;
}

// Formats an axis label; round values need no decimals.
function say_tick(value, unit) {
  if (unit === 'bytes') return say_bytes(value, 2).replace(/\.0+ |(\.\d)0 /, '$1 ');
  return say(value, unit === 'ratio' ? '' : unit);
}

const pen = document.createElement('canvas').getContext('2d');
function width_of(text) {
  pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  return pen.measureText(text).width;
}
const widest = (labels) => Math.ceil(d3.max(labels.map(width_of)) || 0);

// ---- colours

const dark = window.matchMedia('screen and (prefers-color-scheme: dark)');
const colour = (index) => `var(--series-${index % 8})`;
const dashes = (index) => ['', '7 3', '2 3', '9 3 2 3'][index % 4];

// Colours for the numbers of all panels of a section. The least value fades into the background; a missing
// number is grey.
function colour_scale(values, {log, least}) {
  const numbers = known(values).filter((value) => !log || value > 0);
  let [from, to] = numbers.length ? d3.extent(numbers) : [1, 2];
  if (least !== undefined && !log) from = Math.min(least, from);
  if (from === to) to = log ? 2 * from : from + 1;
  const part = (log ? d3.scaleLog() : d3.scaleLinear()).domain([from, to]).range([0, 1]).clamp(true);
  const of_part = (share) => d3.interpolateMagma(dark.matches ? 0.14 + 0.84 * share : 0.97 - 0.87 * share);
  return {from, to, of_part, of: (value) => (is_number(value) ? of_part(part(value)) : '#8887')};
}

function colour_key(host, colours, unit) {
  const strip = element('canvas', {width: 128, height: 1, 'aria-hidden': 'true'});
  const ink = strip.getContext('2d');
  for (let i = 0; i < 128; i++) {
    ink.fillStyle = colours.of_part(i / 127);
    ink.fillRect(i, 0, 1, 1);
  }
  host.append(element('p', {class: 'colours'}, say(colours.from, unit), strip, say(colours.to, unit)));
}

// Includes the line across the plots, if there is one.
function legend(host, names, mark, line = null) {
  const items = names.map((name, index) => element('li', {}, mark(index), name));
  if (line) items.push(element('li', {}, element('span', {class: 'square across'}), line.label));
  if (items.length) host.append(element('ul', {class: 'legend'}, ...items));
}
const square = (css, style = null) => element('span', {class: `square ${css}`, style});
const filled = (index) => square('', `background: ${colour(index)}`);
function stroked(index) {
  const host = element('span', {class: 'stroke'});
  add(canvas_svg(host, 26, 8), 'line',
      {x2: 26, y1: 4, y2: 4, stroke: colour(index), 'stroke-width': 3, 'stroke-dasharray': dashes(index)});
  return host;
}

// ---- drawings

const drawings = [];
const draw_all = (width) => drawings.forEach((draw) => draw(width));

// Draws now, and again whenever width, colours or filters change.
function drawing(host, draw) {
  const again = (width) => {
    host.replaceChildren();
    draw(host, Math.max(220, width || host.clientWidth));
  };
  drawings.push(again);
  again();
}

// Panels side by side if their labels leave enough width. All panels are added before one is drawn, so that
// their width is final.
function row_of_panels(host, panels, labels) {
  const narrow = panels.length > 1 && labels.length * (widest(labels) + 8) < 300;
  const side = host.appendChild(element('div', {class: narrow ? 'beside' : ''}));
  return panels.map(({name}) => panel(side, name));
}

function panel(host, name) {
  const box = element('div', {class: 'panel'}, name ? element('h3', {}, name) : null);
  const inner = box.appendChild(element('div', {class: 'drawing'}));
  host.append(box);
  return inner;
}

// ---- axes

// Powers of two, where d3 would use 5e6.
function byte_ticks([from, to], count) {
  const step = 2 ** Math.ceil(Math.log2(Math.max(1, (to - from) / count)));
  return d3.range(Math.ceil(from / step) * step, to + step / 1000, step);
}

// The most axis labels that do not touch.
function tick_values(scale, length, {unit, whole, log}, across) {
  const most = Math.max(2, Math.floor(length / (across ? 45 : 34)));
  for (let count = most; count >= 1; count--) {
    let values = unit === 'bytes' && !log ? byte_ticks(scale.domain(), count) : scale.ticks(count);
    if (whole) values = values.filter(Number.isInteger);
    if (log && count < most) values = values.filter((value) => Number.isInteger(Math.log10(value)));
    const half = (value) => (across ? width_of(say_tick(value, unit)) / 2 + 5 : 8);
    const apart = (a, b) => Math.abs(scale(a) - scale(b)) >= half(a) + half(b);
    const clear = (value, i) => !i || apart(value, values[i - 1]);
    if (values.length > 1 && values.every(clear)) return values;
  }
  return scale.domain();
}

// Axes around a plot, {scale, label?, unit?, whole?, log?} each; the scales get their ranges. `head`: pixels
// free above the plot. If x.scale has no ticks (bars), the x axis has no labels.
function plot(host, width, height, x, y, head = 0) {
  const top = (y.label ? 24 : 8) + head, bottom = x.label ? 44 : 26, right = width - 14;
  y.scale.range([height - bottom, top]);
  const y_ticks = tick_values(y.scale, height - top - bottom, y, false);
  const left = widest(y_ticks.map((value) => say_tick(value, y.unit))) + 12;
  x.scale.range([left, right]);
  const svg = canvas_svg(host, width, height);
  const y_axis = d3.axisLeft(y.scale).tickValues(y_ticks).tickSize(left - right);
  svg.append('g').attr('class', 'axis y').attr('transform', `translate(${left},0)`)
      .call(y_axis.tickFormat((value) => say_tick(value, y.unit)));
  const x_ticks = x.scale.ticks ? tick_values(x.scale, right - left, x, true) : [];
  const x_axis = d3.axisBottom(x.scale).tickValues(x_ticks).tickSizeOuter(0);
  svg.append('g').attr('class', 'axis x').attr('transform', `translate(0,${height - bottom})`)
      .call(x_axis.tickFormat((value) => say_tick(value, x.unit)))
      .selectAll('.tick text')
      .attr('dx', (value) => Math.min(0, width - x.scale(value) - width_of(say_tick(value, x.unit)) / 2));
  if (x.label) add(svg, 'text', {class: 'label', x: right, y: height - 6, 'text-anchor': 'end'}, x.label);
  if (y.label) add(svg, 'text', {class: 'label', x: 0, y: 12}, y.label);
  return svg;
}

// A line across the plot, such as a budget. Its label, if any, is above it if there is space.
function level(svg, x, y, line) {
  if (!line) return;
  const [from, to] = x.range(), at = y(line.y);
  add(svg, 'line', {class: 'level', x1: from, x2: to, y1: at, y2: at});
  if (!line.label) return;
  const beside = at - d3.min(y.range()) > 14 ? -5 : 15;
  add(svg, 'text', {class: 'level', x: to - 4, y: at + beside, 'text-anchor': 'end'}, line.label);
}

function upright(svg, at, [bottom, top], dash) {
  add(svg, 'line', {class: 'mark', x1: at, x2: at, y1: bottom, y2: top, 'stroke-dasharray': dash});
}

// ---- reading out

// Shows `text(column, row)` below the drawing for the position of the pointer or the arrow keys. `box(column,
// row)` returns its rectangle [left, top, width, height]; at(x, y) is the inverse.
function inspect(host, label, {columns, rows = 1, at, box, text}) {
  const about = `${label} The arrow keys read it out.`;
  const target = element('div', {class: 'inspect', tabindex: 0, role: 'img', 'aria-label': about});
  const cursor = element('div', {class: 'cursor', hidden: ''});
  const output = element('p', {class: 'readout'}, '\u00a0');
  target.append(...host.childNodes, cursor);
  host.append(target, output);
  let place = [0, 0];
  const show = ([column, row]) => {
    place = [Math.min(columns - 1, Math.max(0, column)), Math.min(rows - 1, Math.max(0, row))];
    const [left, top, width, height] = box(...place);
    const style = {left, top, width: Math.max(3, width), height: Math.max(3, height)};
    for (const [key, value] of Object.entries(style)) cursor.style[key] = `${value}px`;
    cursor.hidden = false;
    output.textContent = text(...place);
  };
  target.addEventListener('pointermove', (event) => {
    const {left, top} = target.getBoundingClientRect();
    const [column, row] = at(event.clientX - left, event.clientY - top);
    if (column >= 0 && column < columns && row >= 0 && row < rows) show([column, row]);
  });
  target.addEventListener('pointerleave', () => { cursor.hidden = true; });
  const steps = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]};
  target.addEventListener('keydown', (event) => {
    const step = steps[event.key];
    if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    output.setAttribute('aria-live', 'polite');
    show([place[0] + step[0], place[1] + step[1]]);
  });
}

// Along an x axis: selects the nearest of `xs`.
function inspect_x(host, label, x, y, xs, text) {
  const nearest = (pixel) => d3.scan(xs, (a, b) => Math.abs(x(a) - pixel) - Math.abs(x(b) - pixel));
  const [bottom, top] = y.range();
  const box = (column) => [x(xs[column]) - 1, top, 2, bottom - top];
  inspect(host, label, {columns: xs.length, at: (pixel) => [nearest(pixel), 0], box, text});
}

// ---- tables

function in_order(a, b) {
  if (is_number(a) && is_number(b)) return a - b;
  return String(a).localeCompare(String(b), 'en', {numeric: true});
}

// Clicking a column's head sorts by it; unknown values stay last. Columns without any known value are left
// out.
function table(all_columns, rows, name) {
  const columns = all_columns.filter(({key}) => rows.some((row) => has_value(row[key])));
  const body = element('tbody');
  const css = columns.map(({key, align}) => {
    const right = align ? align === 'right' : rows.some((row) => is_number(row[key]));
    return right ? 'right' : null;
  });
  const row_of = (row) => element('tr', {}, ...columns.map(({key, unit}, i) => {
    return element(i ? 'td' : 'th', {class: css[i], scope: i ? null : 'row'}, say(row[key], unit));
  }));
  const fill = (ordered) => body.replaceChildren(...ordered.map(row_of));
  const sort = (head, key) => {
    const down = head.getAttribute('aria-sort') === 'ascending';
    heads.forEach((other) => other.removeAttribute('aria-sort'));
    head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
    const sorted = rows.filter((row) => has_value(row[key])).sort((a, b) => in_order(a[key], b[key]));
    fill([...(down ? sorted.reverse() : sorted), ...rows.filter((row) => !has_value(row[key]))]);
  };
  const heads = columns.map(({key, label}, i) => {
    const sign = element('span', {class: 'sign', 'aria-hidden': 'true'});
    const button = element('button', {type: 'button', 'aria-label': label ? null : 'name'}, label, sign);
    const head = element('th', {scope: 'col', class: css[i]}, button);
    button.addEventListener('click', () => sort(head, key));
    return head;
  });
  fill(rows);
  const head = element('thead', {}, element('tr', {}, ...heads));
  return element('div', {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': `Table: ${name}`},
                 element('table', {}, head, body));
}

// The numbers behind a drawing; the table is built when it is opened.
function numbers(host, name, columns, rows, summary = 'Numbers') {
  const details = element('details', {}, element('summary', {}, summary));
  details.addEventListener('toggle', () => {
    if (details.open && details.children.length === 1)
      details.append(table(columns, rows(), `${name}, ${summary.toLowerCase()}`));
  });
  host.append(details);
}
