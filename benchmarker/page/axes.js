// Axes: what they reach, where their ticks are, and what is written at them.
const FEW = 1000;  // Ratio of the ends of a logarithmic axis up to which it has ticks at 1, 2 and 5
const STEPS = [1, 2, 5, 10];

// A scale maps values to pixels between two ends; logarithmic ones map the exponent.
function scale(low, high, from, to, log) {
  const of = log ? Math.log10 : (value) => value, back = log ? (value) => 10 ** value : (value) => value;
  const start = of(low), span = of(high) - start || 1;
  return Object.assign((value) => from + ((of(value) - start) / span) * (to - from), {
    low, high, from, to, log,
    invert: (pixel) => back(start + ((pixel - from) / (to - from)) * span),
  });
}

// The ends of an axis: its values and those it must reach, with a little room where it may have some.
function reach(axis, values) {
  if (axis.limit.length > 1) return axis.limit;
  const all = [...values, ...axis.limit].filter((value) => Number.isFinite(value) && (!axis.log || value > 0));
  if (!all.length) return axis.log ? [0.1, 10] : [0, 1];
  let low = all[0], high = all[0];
  for (const value of all) { low = Math.min(low, value); high = Math.max(high, value); }
  if (axis.log) {
    const room = Math.max((high / low) ** 0.04, 1.02);
    return [low / room, high * room];
  }
  const room = 0.04 * (high - low) || Math.abs(high) * 0.05 || 1;
  const [stop] = axis.limit;
  return [stop === low && stop !== undefined ? low : low - room, stop === high && stop !== undefined ? high : high + room];
}

function linearTicks(low, high, most) {
  const rough = (high - low) / Math.max(1, most), power = 10 ** Math.floor(Math.log10(rough) + 1e-9);
  const step = power * STEPS.find((each) => each * power >= rough * (1 - 1e-9));
  const first = Math.ceil(low / step - 1e-9), last = Math.floor(high / step + 1e-9);
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, at) => Number(((first + at) * step).toPrecision(12)));
}

// Logarithmic ticks from the most to the fewest: 1, 2 and 5 over few decades, then powers of ten, then some of these.
function* logTicks(low, high) {
  const inside = (values) => values.filter((value) => value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9));
  const powers = (every) => {
    const first = Math.floor(Math.log10(low) / every) * every, last = Math.ceil(Math.log10(high));
    return Array.from({ length: Math.floor((last - first) / every) + 1 }, (_, at) => Number(`1e${first + at * every}`));
  };
  if (high / low <= 3) for (let most = 8; most > 1; most -= 1) yield linearTicks(low, high, most);
  if (high / low <= FEW) yield inside(powers(1).flatMap((power) => [1, 2, 5].map((each) => Number((each * power).toPrecision(12)))));
  for (const every of [1, 2, 3, 4, 6, 10]) yield inside(powers(every));
}

// The ticks of an axis as [value, text] that do not touch each other, and the unit of its title.
// `preferred` values are ticks if they fit.
function ticksOf(axis, along, preferred = []) {
  const { low, high, log, from, to } = along, vertical = from > to, room = Math.abs(to - from);
  const fits = (ticks) => ticks.every(([value, text], at) => {
    if (!at) return true;
    const [before, last] = ticks[at - 1], apart = Math.abs(along(value) - along(before));
    return apart >= (vertical ? 24 : (widthOf(text) + widthOf(last)) / 2 + 12);
  });
  const named = (values) => {
    const [size, unit] = log ? [1, axis.unit] : scaleOf(Math.max(Math.abs(low), Math.abs(high)), axis.unit);
    return { unit, ticks: values.map((value) => [value, tickText(value, values, axis.unit, size, log)]) };
  };
  const found = [];
  if (preferred.length) found.push(() => preferred.filter((value) => value >= low && value <= high));
  if (!log) {
    const usual = Math.max(2, Math.floor(room / (vertical ? 44 : 76)));
    for (let most = usual; most > 0; most -= 1) found.push(() => linearTicks(low, high, most));
    for (let most = usual + 1; most <= 2 * usual; most += 1) found.push(() => linearTicks(low, high, most));
  }
  else for (const values of logTicks(low, high)) found.push(() => values);
  let best = null;
  for (const values of found) {
    const tried = named(values());
    if (!fits(tried.ticks)) continue;
    if (tried.ticks.length > 1) return tried;
    best ??= tried;
  }
  return best ?? named([]);
}

function tickText(value, values, unit, size, log) {
  if (unit === "%") return `${trimmed(100 * value, values.map((each) => 100 * each))}%`;
  if (log && !UNSCALED.includes(unit)) {
    const [of, name] = scaleOf(value, unit);
    return `${digits(value / of, 4)} ${name}`.trim();
  }
  if (size !== 1) return trimmed(value / size, values.map((each) => each / size));
  const most = Math.max(...values.map(Math.abs));
  if (most >= FEW && value !== 0) {
    const exponent = Math.max(-9, Math.min(12, 3 * Math.floor(Math.log10(Math.abs(value) * (1 + 1e-12)) / 3)));
    const of = Math.abs(value) < 1 ? 1 : 10 ** exponent;
    return `${digits(value / of, 6)}${of === 1 ? "" : PREFIXES[exponent]}`;
  }
  return log ? digits(value, 4) : trimmed(value, values);
}

// A value with as many decimals as tell the ticks apart.
function trimmed(value, values) {
  const step = values.length > 1 ? Math.abs(values[1] - values[0]) : Math.abs(value) || 1;
  const most = Math.max(...values.map(Math.abs));
  if (most >= 1e6 || step < 1e-4) return digits(value, 6);
  const decimals = Math.max(0, Math.min(8, -Math.floor(Math.log10(step) + 1e-9)));
  return String(Number(value.toFixed(decimals))).replace("-", "−");
}

// Ticks of a logarithmic axis have their own prefixes; a linear axis has one unit, in its title.
const titleOf = (axis, unit) => (unit && unit !== "%" && (!axis.log || UNSCALED.includes(unit)) ? `${axis.title}, ${unit}` : axis.title);

// Draw the horizontal axis below a frame: lines of the grid, texts of the ticks, and the title.
function drawAcross(layer, frame, along, { ticks }, lines, colours) {
  const bottom = frame.y + frame.height;
  for (const [value, text] of ticks) {
    const x = along(value);
    layer.append(svg("line", { x1: x, x2: x, y1: frame.y, y2: bottom, stroke: colours.grid }));
    const half = widthOf(text) / 2;
    const at = Math.max(half, Math.min(frame.whole - half, x));
    layer.append(label(text, at, bottom + 18, { class: "tick x", "data-value": value, "text-anchor": "middle", fill: colours.muted }));
  }
  layer.append(svg("line", { x1: frame.x, x2: frame.x + frame.width, y1: bottom, y2: bottom, stroke: colours.line }));
  const widest = Math.max(0, ...lines.map((line) => widthOf(line, FONT)));
  const middle = Math.max(widest / 2, Math.min(frame.whole - widest / 2, frame.x + frame.width / 2));
  lines.forEach((line, at) => layer.append(label(line, middle, bottom + 40 + 17 * at, { class: "title x", "font-size": FONT, "text-anchor": "middle", fill: colours.muted })));
}

// Draw the vertical axis left of a frame, with its title above it.
function drawUp(layer, frame, up, { ticks }, lines, colours) {
  for (const [value, text] of ticks) {
    const y = up(value);
    layer.append(svg("line", { x1: frame.x, x2: frame.x + frame.width, y1: y, y2: y, stroke: colours.grid }));
    layer.append(label(text, frame.x - 8, y, { class: "tick y", "data-value": value, "text-anchor": "end", "dominant-baseline": "central", fill: colours.muted }));
  }
  lines.forEach((line, at) => layer.append(label(line, 0, frame.y - 16 - 17 * (lines.length - 1 - at), { class: "title y", "font-size": FONT, fill: colours.muted })));
}
