// A figure: where its parts are at a width, its legend or direct labels, names of rows, and all of it as SVG.
const NARROW = 640;  // Width in pixels below which names of rows are above the rows
const LINE = 20, GLYPH = 26, GAP = 18;  // Height of a line of the legend, width of its signs, room between its entries
const FAR = [24, 40, 56, 72, 88, 104];  // How far above or below its point a label is that has no room beside it
const views = new Map();  // By key of a figure, the ends of x that the reader zoomed to
const plots = new WeakMap();  // By the element of a figure, what is drawn in it

const isHeat = (figure) => figure.marks[0].type === "heat";

// Plan a figure at a width: scales, ticks, frame and height. All texts are measured, so that none is cut.
function planOf(figure, width) {
  const narrow = width < NARROW, { rows } = figure;
  if (isHeat(figure)) return heatPlan(figure, width);
  const values = valuesOf(figure), full = reach(figure.x, values.across), [low, high] = views.get(figure.key) ?? full;
  const plan = { figure, width, narrow, full, direct: [], entries: figure.legend.map((each) => ({ ...each, mark: figure.marks[each.mark] })) };
  const ridges = figure.marks.some((mark) => mark.type === "ridge");
  const frame = { x: 0, y: 8, whole: width, height: rows.length ? 0 : Math.round(Math.min(360, Math.max(240, width * 0.5))) };
  plan.frame = frame;
  let right = 14;
  if (rows.length) {
    plan.pitch = ridges ? (narrow ? 84 : 66) : narrow ? 52 : 36;
    plan.row = narrow ? plan.pitch - 18 : plan.pitch;
    frame.height = plan.pitch * rows.length;
    plan.names = rows.map((row) => shortened(row, narrow ? width : 0.4 * width));
    frame.x = narrow ? 2 : Math.max(...plan.names.map((name) => widthOf(name))) + 14;
  } else {
    const ends = reach(figure.y, values.up), draft = scale(ends[0], ends[1], frame.height, 0, figure.y.log);
    plan.ends = ends;
    plan.upTicks = ticksOf(figure.y, draft);
    frame.x = Math.max(12, ...plan.upTicks.ticks.map(([, text]) => widthOf(text))) + 12;
    plan.upTitle = wrapped(titleOf(figure.y, plan.upTicks.unit), width, FONT);
    plan.direct = directOf(figure, plan, [low, high]);
    if (plan.direct.length) right = Math.max(...plan.direct.map(({ name }) => widthOf(name))) + 20;
  }
  frame.width = width - frame.x - right;
  plan.legend = legendLines(plan.entries.filter((each) => !plan.direct.length || !each.runs), width);
  frame.y += plan.legend.length * LINE + (plan.legend.length ? 10 : 0) + (plan.upTitle ? plan.upTitle.length * 17 + 10 : 0);
  plan.along = scale(low, high, frame.x, frame.x + frame.width, figure.x.log);
  plan.up = rows.length
    ? (at) => frame.y + plan.pitch * Math.round(at) + (narrow ? 18 : 0) + (0.5 + at - Math.round(at)) * plan.row
    : scale(plan.ends[0], plan.ends[1], frame.y + frame.height, frame.y, figure.y.log);
  plan.acrossTicks = ticksOf(figure.x, plan.along, figure.x.log ? distinct(figure) : []);
  plan.acrossTitle = wrapped(titleOf(figure.x, plan.acrossTicks.unit), width, FONT);
  plan.height = frame.y + frame.height + 30 + 17 * plan.acrossTitle.length;
  return plan;
}

// The whole numbers at which a logarithmic axis has its points, such as batch sizes, if these are few.
function distinct(figure) {
  const values = [...new Set(figure.marks.flatMap((mark) => (mark.type === "points" ? mark.x : [])))].sort((one, two) => one - two);
  return values.length <= 10 && values.every(Number.isInteger) ? values : [];
}

function heatPlan(figure, width) {
  const [{ columns }] = figure.marks, names = figure.rows.map((row) => shortened(row, 0.36 * width));
  const left = Math.max(...names.map((name) => widthOf(name))) + 12, most = Math.max(...columns.map((name) => widthOf(name)));
  const cell = Math.min((width - left - 2) / columns.length, Math.max(96, most + 16)), upright = most + 8 > cell;
  const tops = columns.map((name) => (upright ? shortened(name, 120) : name));
  const top = upright ? Math.max(...tops.map((name) => widthOf(name))) : 14;
  const frame = { x: left, y: 40 + top, width: cell * columns.length, height: 16 * figure.rows.length, whole: width };
  return {
    figure, width, frame, names, tops, upright, cell, pitch: 16, row: 16, entries: [], legend: [], direct: [], narrow: false,
    along: scale(-0.5, columns.length - 0.5, frame.x, frame.x + frame.width, false), up: (row) => frame.y + 16 * row + 8,
    height: Math.max(120, frame.y + frame.height + 10),
  };
}

function legendLines(entries, width) {
  const lines = [];
  let x = Infinity;
  for (const { name, mark } of entries) {
    const text = shortened(name, width - GLYPH), wide = GLYPH + widthOf(text);
    if (x + wide > width) { lines.push([]); x = 0; }
    lines.at(-1).push({ text, mark, x });
    x += wide + GAP;
  }
  return lines;
}

// Marks that run far to the right have their names at their ends instead of a legend, if all of these fit there.
function directOf(figure, plan, [low, high]) {
  const { entries, frame, width } = plan, most = 0.26 * width, draft = scale(low, high, 0, 1, figure.x.log);
  const found = entries.filter(({ runs }) => runs).map(({ name, mark }) => ({ name, mark, at: mark.x.findLastIndex((x) => x <= high * (1 + 1e-9)) }));
  if (plan.narrow || found.length * 16 > frame.height || found.some(({ name }) => widthOf(name) > most)) return [];
  return found.every(({ mark, at }) => at >= 0 && draft(mark.x[at]) > 0.7) ? found : [];
}

function drawDirect(plot, layer) {
  const { frame, along, up, colours } = plot, right = frame.x + frame.width, bottom = frame.y + frame.height;
  const labels = plot.direct.map(({ name, mark, at }) => ({ name, mark, x: along(mark.x[at]), from: Math.max(frame.y, Math.min(bottom, up(mark.y[at]))) }));
  labels.sort((one, two) => one.from - two.from);
  let last = frame.y - 10;
  for (const each of labels) last = each.y = Math.max(each.from, last + 16);
  let next = bottom + 22;
  for (const each of [...labels].reverse()) next = each.y = Math.min(each.y, next - 16);
  for (const { name, mark, x, from, y } of labels) {
    if (right - x > 8 || Math.abs(y - from) > 3) {
      layer.append(svg("path", { d: `M${x + 7},${from}L${Math.max(right, x + 7)},${y}h5`, fill: "none", stroke: colourOf(mark, colours), "stroke-width": 0.9, "stroke-opacity": 0.8 }));
    }
    plot.taken.push({ x: x + 7, y: Math.min(from, y) - 3, width: right + 8 - x, height: Math.abs(from - y) + 6 });
    layer.append(label(name, right + 15, y, { class: "direct", "dominant-baseline": "central", fill: colours.ink }));
  }
}

function drawLegend(plot, layer) {
  const { colours } = plot;
  plot.legend.forEach((line, number) => line.forEach(({ text, mark, x }) => {
    const y = 10 + number * LINE, colour = colourOf(mark, colours);
    if (mark.type !== "points") {
      layer.append(svg("rect", { x, y: y - 6, width: 16, height: 12, rx: 2, fill: mark.stacked ? hatched(plot, mark) : mark.type === "bars" ? colour : mixed(colours.paper, colour, 0.3), stroke: mark.stacked ? colours.muted : colour, "stroke-width": mark.stacked ? 0.75 : 1 }));
    } else {
      if (isLine(mark)) layer.append(svg("path", { d: `M${x},${y}h20`, ...strokeOf(mark, colours) }));
      if (hasDots(mark)) layer.append(dotOf(mark, colours, x + 10, y));
    }
    layer.append(label(text, x + GLYPH, y, { class: "legend", "dominant-baseline": "central", fill: colours.ink }));
  }));
}

// Names of rows, left of the frame or, where it is narrow, above each row.
function drawNames(plot, layer) {
  const { frame, narrow, pitch, colours, figure } = plot;
  plot.names.forEach((name, row) => {
    const y = frame.y + pitch * row;
    const place = narrow ? { x: 0, y: y + 13 } : { x: frame.x - 10, y: y + pitch / 2, "text-anchor": "end", "dominant-baseline": "central" };
    const text = label(name, place.x, place.y, { class: "tick row", fill: colours.ink, ...place, ...(narrow ? haloOf(colours) : {}) });
    if (name !== figure.rows[row]) text.append(svg("title", {}, figure.rows[row]));
    layer.append(text);
  });
}
const haloOf = (colours) => ({ stroke: colours.paper, "stroke-width": 4, "stroke-linejoin": "round", "paint-order": "stroke" });

// Labels beside points: right, left, above or below, where they touch nothing, or else farther off, at the end of a line.
function drawLabels(plot, layer) {
  const { frame, width, colours } = plot, taken = [...plot.taken, ...plot.targets.filter((each) => each.solid)];
  const touches = (one, two) => one.x < two.x + two.width && two.x < one.x + one.width && one.y < two.y + two.height && two.y < one.y + one.height;
  for (const target of plot.targets.filter((each) => each.label)) {
    const text = shortened(target.label, 0.5 * frame.width), wide = widthOf(text), high = 15;
    const x = target.x + target.width / 2, y = target.y + target.height / 2, r = target.width / 2 + 4, [left, right, above, below] = target.span;
    const beside = (top) => [[x + r, top], [x - r - wide, top]];
    const near = [[right + r, y - high / 2], [left - r - wide, y - high / 2], [x - wide / 2, above - r - high], [x - wide / 2, below + r], ...[y - r - high / 2, y + r - high / 2].flatMap(beside), ...[above - r - high, below + r].flatMap((top) => [[x - 4, top], [x + 4 - wide, top]])];
    const places = [...near, ...FAR.flatMap((far) => [y + far - high / 2, y - far - high / 2].flatMap(beside))];
    const free = places.map(([left, top]) => ({ x: left, y: top, width: wide, height: high })).find((box) => (
      box.x >= frame.x && box.x + box.width <= width && box.y >= frame.y - 8 && box.y + box.height <= frame.y + frame.height
      && !taken.some((each) => each !== target && touches(box, each))));
    if (!free) continue;
    taken.push(free);
    if (!near.some(([left, top]) => left === free.x && top === free.y)) {
      const end = free.x > x ? free.x - 2 : free.x + wide + 2;
      layer.append(svg("path", { class: "leader", d: `M${x},${y}L${end},${free.y + high / 2}`, stroke: colours.muted, "stroke-width": 0.9 }));
    }
    layer.append(label(text, free.x, free.y + high / 2, { class: "label", "dominant-baseline": "central", fill: colours.ink, ...haloOf(colours) }));
  }
}

function drawHeatAxes(plot, layer) {
  const { frame, cell, tops, upright, along, colours, figure } = plot, [{ limit }] = figure.marks, every = Math.ceil(14 / cell);
  tops.forEach((name, column) => {
    if (upright && column % every) return;
    const x = along(column), y = frame.y - 6;
    layer.append(label(name, x, y, upright ? { class: "tick x", fill: colours.muted, transform: `rotate(-90 ${x} ${y})`, "dominant-baseline": "central" } : { class: "tick x", "text-anchor": "middle", fill: colours.muted }));
  });
  const id = `shades-${figure.key}`, stops = [-1, 0, 1].map((share) => svg("stop", { offset: (share + 1) / 2, "stop-color": shadeOf(share, colours) }));
  layer.append(svg("linearGradient", { id }, ...stops), svg("rect", { x: 44, y: 4, width: 120, height: 11, fill: `url(#${id})`, stroke: colours.line }));
  const ends = { y: 10, "dominant-baseline": "central", fill: colours.muted, class: "legend" };
  layer.append(label(`−${shown(limit, "%")}`, 38, 10, { ...ends, "text-anchor": "end" }), label(`+${shown(limit, "%")}`, 170, 10, ends));
}

// Draw a figure into its element and keep what was drawn, for the pointer and the keyboard.
function drawFigure(place, figure, width, colours) {
  const plot = { ...planOf(figure, width), colours, targets: [], taken: [], patterns: new Map() }, { frame, height } = plot;
  const zoomed = views.has(figure.key), room = zoomed ? 0 : 9, id = `frame-${figure.key}`;
  const grid = svg("g"), marks = svg("g", { "clip-path": `url(#${id})` }), texts = svg("g"), definitions = svg("defs");
  drawBands(plot, marks, texts);
  if (isHeat(figure)) drawHeatAxes(plot, texts);
  else {
    drawAcross(grid, frame, plot.along, plot.acrossTicks, plot.acrossTitle, colours);
    if (!figure.rows.length) drawUp(grid, frame, plot.up, plot.upTicks, plot.upTitle, colours);
  }
  drawMarks(plot, marks);
  const right = frame.x + frame.width;
  plot.targets = plot.targets.filter(({ x, width: wide }) => x + wide / 2 >= frame.x - 0.5 && x + wide / 2 <= right + 0.5 || (x <= right && x + wide >= frame.x && wide > 12));
  plot.targets.sort((one, two) => one.group - two.group || one.x - two.x);
  if (plot.names) drawNames(plot, texts);
  drawDirect(plot, texts);
  drawLabels(plot, texts);
  drawLegend(plot, texts);
  definitions.append(svg("clipPath", { id }, svg("rect", { x: frame.x - room, y: frame.y - 9, width: frame.width + 2 * room, height: frame.height + 18 })), ...plot.patterns.values());
  plot.overlay = svg("g", { class: "overlay" });
  const image = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "font-family": family(), "aria-hidden": "true" }, definitions, grid, marks, texts, plot.overlay);
  place.replaceChildren(image);
  place.style.minHeight = `${height}px`;
  plots.set(place, plot);
}
