// Marks of a figure: bars, boxes, points and lines, heat maps, density curves.
//
// A mark is drawn into a layer of a plot `{figure, colours, frame, along, up, row, targets, patterns}`: `along` maps x and
// `up` maps y (or the number of a row) to pixels, `row` is the height of a row. Each mark adds its targets, which the
// pointer and the keyboard find: `{x, y, width, height, group, text}`; a group is a row, or a mark if there are no rows.
const DASHES = [null, "7 4", "2 3", "8 3 2 3", "12 5", "12 4 2 4", "5 2", "2 6"];
const THICK = 0.62;  // Share of a row that a bar takes
const RIDGE = 0.45;  // Share of a row that a curve above it takes
const SHADES = 20;  // Shades of a heat map on each side of 0

const ROUND = Array.from({ length: 10 }, (_, at) => [at % 2 ? 0.45 : 1.15, (at * Math.PI) / 5 - Math.PI / 2]);
const polygon = (r, corners) => `M${corners.map(([x, y]) => `${+(x * r).toFixed(2)},${+(y * r).toFixed(2)}`).join("L")}Z`;
const PLUS = [[-1, -0.38], [-0.38, -0.38], [-0.38, -1], [0.38, -1], [0.38, -0.38], [1, -0.38], [1, 0.38], [0.38, 0.38], [0.38, 1], [-0.38, 1], [-0.38, 0.38], [-1, 0.38]];
const SYMBOLS = [
  (r) => `M${-r},0a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0Z`,
  (r) => polygon(r * 0.89, [[-1, -1], [1, -1], [1, 1], [-1, 1]]),
  (r) => polygon(r * 1.25, [[0, -1], [1, 0], [0, 1], [-1, 0]]),
  (r) => polygon(r * 1.2, [[0, -1], [0.95, 0.72], [-0.95, 0.72]]),
  (r) => polygon(r * 1.1, PLUS),
  (r) => polygon(r * 1.1, PLUS.map(([x, y]) => [(x - y) * Math.SQRT1_2, (x + y) * Math.SQRT1_2])),
  (r) => polygon(r * 1.1, ROUND.map(([length, angle]) => [length * Math.cos(angle), length * Math.sin(angle)])),
  (r) => polygon(r * 1.2, [[0, 1], [0.95, -0.72], [-0.95, -0.72]]),
];

const isLine = (mark) => mark.type === "points" && mark.look.startsWith("line");
const hasDots = (mark) => mark.type === "points" && mark.look !== "line";
const colourOf = (mark, colours) => (mark.stacked ? colours.kinds[mark.series % 9] : mark.look === "small" ? colours.ink : colours.series[mark.series % 8]);
const symbolOf = (mark) => (mark.look === "small" ? 0 : (mark.symbol ?? mark.series) % 8);
const radiusOf = (mark) => (mark.look.startsWith("small") ? 3.5 : 5.5);
const strokeOf = (mark, colours) => ({
  fill: "none", stroke: colourOf(mark, colours), "stroke-width": mark.look === "line" ? 1.75 : 2, "stroke-dasharray": DASHES[symbolOf(mark)],
  "stroke-linejoin": "round",
});
function dotOf(mark, colours, x, y) {
  const colour = colourOf(mark, colours), open = mark.look === "small" || mark.look === "hollow";
  return svg("path", {
    d: SYMBOLS[symbolOf(mark)](radiusOf(mark)), transform: `translate(${x.toFixed(2)},${y.toFixed(2)})`,
    fill: open ? colours.paper : colour, stroke: open ? colour : colours.paper, "stroke-width": open ? 1.5 : 1,
  });
}

function errorBar(layer, from, to, at, upright, colour) {
  const cap = 4, line = (...d) => d.map((each) => each.toFixed(2)).join(" ");
  const d = upright
    ? `M${line(at, from)}L${line(at, to)}M${line(at - cap, from)}h${2 * cap}M${line(at - cap, to)}h${2 * cap}`
    : `M${line(from, at)}L${line(to, at)}M${line(from, at - cap)}v${2 * cap}M${line(to, at - cap)}v${2 * cap}`;
  layer.append(svg("path", { class: "interval", d, fill: "none", stroke: colour, "stroke-width": 1.5 }));
}

// The hatching of a kind of work, so that kinds do not differ by colour alone.
const HATCHES = ["", "M0,7L7,0", "M3.5,3.5h.01", "M0,0L7,7", "M0,0L7,7M0,7L7,0", "M0,3.5h7", "M3.5,0v7", "M3.5,0v7M0,3.5h7"];
function hatched(plot, mark) {
  const colour = colourOf(mark, plot.colours), hatch = HATCHES[mark.series % 8];
  if (!hatch) return colour;
  const id = `hatch-${plot.figure.key}-${mark.series}`;
  if (!plot.patterns.has(id)) {
    const stroke = { d: hatch, stroke: plot.colours.paper, "stroke-width": hatch.includes(".01") ? 2.5 : 1.1, "stroke-linecap": "round", "stroke-opacity": 0.75 };
    plot.patterns.set(id, svg("pattern", { id, width: 7, height: 7, patternUnits: "userSpaceOnUse" },
      svg("rect", { width: 7, height: 7, fill: colour }), svg("path", stroke)));
  }
  return `url(#${id})`;
}

function drawBars(plot, layer, mark) {
  const { figure, along, up, colours } = plot, high = THICK * plot.row, axis = figure.x;
  mark.at.forEach((row, index) => {
    const value = mark.values[index], start = mark.stacked ? plot.stacked[row] ?? 0 : 0, end = start + value;
    if (mark.stacked) plot.stacked[row] = end;
    const [left, right] = [along(Math.min(start, end)), along(Math.max(start, end))], y = up(row) - high / 2;
    layer.append(svg("rect", {
      x: left, y, width: Math.max(0, right - left), height: high, fill: mark.stacked ? hatched(plot, mark) : colourOf(mark, colours),
      stroke: mark.stacked ? colours.muted : null, "stroke-width": 0.75, rx: mark.stacked ? null : 1.5,
    }));
    const [low, top] = [mark.low[index] ?? null, mark.high[index] ?? null];
    if (low !== null && top !== null) errorBar(layer, along(low), along(top), up(row), false, colours.ink);
    const ends = low !== null && top !== null ? ` [${shown(low, axis.unit)}, ${shown(top, axis.unit)}]` : "";
    const text = `${figure.rows[row]}\n${mark.stacked ? `${mark.name}: ` : ""}${shown(value, axis.unit)}${ends}${axis.unit ? "" : ` ${axis.title}`}`;
    plot.targets.push({ x: left, y, width: right - left, height: high, group: row, text });
  });
}

function drawBoxes(plot, layer, mark) {
  const { figure, along, up, colours } = plot, high = 0.55 * plot.row, colour = colourOf(mark, colours), { unit } = figure.x;
  mark.at.forEach((row, index) => {
    const five = mark.five[index], [p5, q1, median, q3, p95] = five.map(along), y = up(row);
    const cap = high / 4;
    layer.append(
      svg("path", { d: `M${p5} ${y}H${q1}M${q3} ${y}H${p95}M${p5} ${y - cap}v${2 * cap}M${p95} ${y - cap}v${2 * cap}`, fill: "none", stroke: colour, "stroke-width": 1.75 }),
      svg("rect", { class: "box", x: q1, y: y - high / 2, width: Math.max(0, q3 - q1), height: high, fill: mixed(colours.paper, colour, 0.3), stroke: colour, "stroke-width": 1.75 }),
      svg("path", { class: "median", d: `M${median} ${y - high / 2}v${high}`, fill: "none", stroke: colour, "stroke-width": 2.5 }),
    );
    const [low, first, middle, third, top] = five.map((value) => shown(value, unit));
    const text = `${figure.rows[row]}\nmedian ${middle}\nquartiles ${first} to ${third}\n5th to 95th percentile ${low} to ${top}`;
    plot.targets.push({ x: p5, y: y - high / 2, width: p95 - p5, height: high, group: row, text });
  });
}

function drawPoints(plot, layer, mark, number) {
  const { figure, along, up, colours, taken } = plot, colour = colourOf(mark, colours), upright = !figure.rows.length, spans = [];
  const { across, rising } = endsOf(figure, mark), places = mark.x.map((x, at) => [along(x), up(mark.y[at])]);
  if (isLine(mark)) layer.append(svg("path", { class: "line", d: `M${places.map(([x, y]) => `${x.toFixed(2)},${y.toFixed(2)}`).join("L")}`, ...strokeOf(mark, colours) }));
  places.forEach(([x, y], at) => {
    const pixels = (of, ends, here) => ends.map((each) => ((each[at] ?? null) === null ? here : of(each[at])));
    const [left, right] = pixels(along, across, x), [bottom, top] = pixels(up, rising, y);
    if (left !== right) errorBar(layer, left, right, y, false, colour);
    if (top !== bottom) errorBar(layer, bottom, top, x, true, colour);
    taken.push({ x: left, y: y - 1, width: right - left, height: 2 }, { x: x - 1, y: top, width: 2, height: bottom - top });
    spans.push([left, right, top, bottom]);
  });
  const r = hasDots(mark) ? radiusOf(mark) : 3;
  places.forEach(([x, y], at) => {
    if (hasDots(mark)) layer.append(dotOf(mark, colours, x, y));
    const of = upright ? `${shown(mark.x[at], figure.x.unit)}, ${shown(mark.y[at], figure.y.unit)}` : `${figure.rows[Math.round(mark.y[at])]}\n${shown(mark.x[at], figure.x.unit)}`;
    plot.targets.push({
      x: x - r, y: y - r, width: 2 * r, height: 2 * r, group: upright ? number : Math.round(mark.y[at]),
      text: mark.texts[at] || `${mark.name}\n${of}`, label: mark.labels[at] || "", solid: hasDots(mark), span: spans[at],
    });
  });
}

// The cells of one shade are one path, so that thousands of cells are quick to draw.
function drawHeat(plot, layer, mark) {
  const { along, up, row, colours, figure } = plot, wide = along(1) - along(0), gap = wide > 6 ? 0.5 : 0;
  const paths = new Map();
  mark.values.forEach((cells, at) => cells.forEach((value, column) => {
    if (value === null) return;
    const shade = Math.round(Math.max(-1, Math.min(1, value / mark.limit)) * SHADES);
    const x = along(column - 0.5) + gap, y = up(at) - row / 2 + gap, width = wide - 2 * gap, height = row - 2 * gap;
    const d = `M${x.toFixed(1)},${y.toFixed(1)}h${width.toFixed(1)}v${height}h${(-width).toFixed(1)}z`;
    if (paths.has(shade)) paths.get(shade).push(d); else paths.set(shade, [d]);
    plot.targets.push({ x, y, width, height, group: at, text: mark.texts[at][column] || `${figure.rows[at]}, ${mark.columns[column]}: ${shown(value, "%")}` });
  }));
  for (const [shade, d] of paths) layer.append(svg("path", { d: d.join(""), fill: shadeOf(shade / SHADES, colours), stroke: gap ? colours.line : null, "stroke-width": 0.5 }));
}
const shadeOf = (share, colours) => mixed(colours.paper, colours.series[share < 0 ? 0 : 1], Math.abs(share));

function drawRidge(plot, layer, mark) {
  const { figure, along, up, row, colours } = plot, colour = colourOf(mark, colours), base = up(mark.at), high = row * RIDGE;
  const points = mark.x.map((x, at) => `${along(x).toFixed(2)},${(base - high * mark.heights[at]).toFixed(2)}`);
  layer.append(
    svg("path", { d: `M${along(mark.x[0]).toFixed(2)},${base}L${points.join("L")}L${along(mark.x.at(-1)).toFixed(2)},${base}Z`, fill: colour, "fill-opacity": 0.28 }),
    svg("path", { class: "line", d: `M${points.join("L")}`, fill: "none", stroke: colour, "stroke-width": 1.75, "stroke-linejoin": "round" }),
  );
  plot.targets.push({ x: along(mark.x[0]), y: base - high, width: along(mark.x.at(-1)) - along(mark.x[0]), height: high, group: mark.at, text: `${figure.rows[mark.at]}\n${mark.name}` });
}

const DRAWN = { bars: drawBars, boxes: drawBoxes, points: drawPoints, heat: drawHeat, ridge: drawRidge };
function drawMarks(plot, layer) {
  plot.stacked = [];
  plot.figure.marks.forEach((mark, number) => {
    const inner = svg("g", { class: `mark ${mark.type}` });
    DRAWN[mark.type](plot, inner, mark, number);
    layer.append(inner);
  });
}

// Ranges of x across the whole frame, with names where these fit and names of rows do not stand there, and single values.
function drawBands(plot, layer, texts) {
  const { figure, frame, along, colours, taken } = plot, named = !plot.narrow || !figure.rows.length, names = [];
  for (const band of figure.bands) {
    const left = Math.max(frame.x, along(band.start)), width = Math.min(frame.x + frame.width, along(band.end)) - left;
    if (width <= 0) continue;
    const fill = band.look === "doubt" ? colours.mark : colours.band;
    layer.append(svg("rect", { class: `band ${band.look}`, x: left, y: frame.y, width, height: frame.height, fill }));
    const name = shortened(band.name, width - 8);
    if (named && (name.length >= Math.min(12, band.name.length))) names.push(label(name, left + 4, frame.y + 13, { class: "band", fill: colours.muted, stroke: fill, "stroke-width": 3, "paint-order": "stroke" }));
  }
  for (const value of figure.lines.filter((each) => each >= along.low && each <= along.high)) {
    layer.append(svg("line", { x1: along(value), x2: along(value), y1: frame.y, y2: frame.y + frame.height, stroke: colours.muted, "stroke-width": 1.5, "stroke-dasharray": "2 3" }));
    taken.push({ x: along(value) - 3, y: frame.y, width: 6, height: frame.height });
  }
  texts.append(...names);
}

// The ends of the intervals of points along x, and those along y.
function endsOf(figure, mark) {
  const ends = [mark.low, mark.high];
  return figure.rows.length ? { across: ends, rising: [[], []] } : { across: [mark.left, mark.right], rising: ends };
}

// The values of a figure along x, and along y if it has no rows; ends of intervals included.
function valuesOf(figure) {
  const across = [...figure.lines], up = [];
  const known = (ends) => ends.flat().filter((end) => end !== null);
  const stacks = [];
  for (const mark of figure.marks) {
    if (mark.type === "points") {
      const ends = endsOf(figure, mark);
      across.push(...mark.x, ...known(ends.across));
      up.push(...mark.y, ...known(ends.rising));
    } else if (mark.type === "bars") {
      across.push(0, ...known([mark.low, mark.high]));
      mark.at.forEach((row, at) => across.push(mark.stacked ? stacks[row] = (stacks[row] ?? 0) + mark.values[at] : mark.values[at]));
    } else if (mark.type === "boxes") across.push(...mark.five.flat());
    else if (mark.type === "ridge") across.push(...mark.x);
  }
  return { across, up };
}
