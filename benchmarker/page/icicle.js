// An icicle: each part below the one that it belongs to, as wide as the time that it took. Two profiles stand one above
// the other at one scale, with the colour of the side on which a part takes longer.
const PART = 22, THIN = 0.4, LEVELS = ["profile", "phase", "scope", "op", "kernel", "rest"];  // Height of a part; pixels below which it is not drawn
const icicles = new Map();  // By key of a figure: its parts, the one that fills the width, the one that is pointed at, what is searched

function icicleOf(figure) {
  if (icicles.has(figure.key)) return icicles.get(figure.key);
  const [mark] = figure.marks, above = [];
  const parts = mark.nodes.map(([depth, number, label, category, ns, count], at) => {
    const level = LEVELS[number], named = label < 0 ? "" : mark.labels[label];
    const name = level === "profile" ? "all work" : named || (level === "phase" ? "phase unknown" : "(no name)");
    const part = { depth, level, at, category, name, ns, count, parts: [], parent: above[depth - 1] ?? null };
    part.time = part.ns.map((ns, side) => ns / mark.steps[side]);
    part.parent?.parts.push(part);
    above[depth] = part;
    return part;
  });
  const made = { mark, parts, top: parts[0], found: null, wanted: "", deepest: mark.steps.map((_, side) => parts.reduce((deepest, part) => (part.ns[side] ? Math.max(deepest, part.depth) : deepest), 0)) };
  icicles.set(figure.key, made);
  return made;
}

// A part and those that it is within, the outermost first.
const pathOf = (part) => (part ? [...pathOf(part.parent), part] : []);
const sidesOf = ({ mark }) => (mark.sides.length > 1 ? mark.sides : [""]);
const panelHeight = (icicle, side) => (icicle.deepest[side] + 1) * PART + (icicle.mark.sides.length > 1 ? 24 : 0) + 10;
const icicleHeight = (figure) => icicleOf(figure).deepest.reduce((sum, _, side) => sum + panelHeight(icicleOf(figure), side), 0);

// The colour of a part: of a kernel, that of its category; of two sides, that of the one on which it takes longer.
function partColour({ mark }, part, colours) {
  if (mark.sides.length > 1) {
    const [one, two] = part.time, longest = Math.max(one, two), change = longest ? (two - one) / longest : 0;
    const share = Math.abs(change);
    return share < 0.005 ? colours.grid : mixed(colours.paper, colours.series[mark.series[change > 0 ? 1 : 0] % 8], 0.15 + 0.8 * share);
  }
  if (part.category >= 0) return colours.kinds[mark.colours[part.category]];
  return mixed(colours.paper, colours.ink, { profile: 0.2, phase: 0.16, scope: 0.11, op: 0.07 }[part.level] ?? 0.03);
}

function luminance(colour) {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16) / 255)
    .map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
// Black or white, whichever is easier to read on a colour.
const inkOn = (colour) => (luminance(colour) > 0.179 ? "#000000" : "#ffffff");

function matches(part, wanted) { return part.level !== "profile" && part.level !== "rest" && part.name.toLowerCase().includes(wanted); }

function drawIcicle(place, figure, width, colours) {
  const icicle = icicleOf(figure), { mark, top } = icicle, height = icicleHeight(figure);
  icicle.colours = colours;
  equipIcicle(place, figure);
  const image = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "font-family": family(), "aria-hidden": "true" });
  const scale = width / Math.max(...top.time, 1);
  icicle.boxes = new Map();
  sidesOf(icicle).forEach((name, side) => {
    let y = side ? panelHeight(icicle, 0) : 0;
    if (name) {
      const text = `${name}: ${shown(top.time[side] / 1e9, "s")}${mark.steps[side] > 1 ? " per step" : ""}`;
      image.append(
        svg("rect", { x: 0, y: y + 3, width: 12, height: 12, rx: 2, fill: colours.series[mark.series[side] % 8] }),
        label(shortened(text, width - 18, FONT), 18, y + 14, { "font-size": FONT, fill: colours.ink }),
      );
      y += 24;
    }
    drawParts(icicle, image, top, side, 0, y, scale, colours);
  });
  icicle.overlay = svg("g", { class: "overlay", "pointer-events": "none" });
  image.append(icicle.overlay);
  place.replaceChildren(image);
  plots.set(place, { figure, width, height, colours });
  pointAt(icicle, icicle.found, icicle.side ?? 0);
}

function drawParts(icicle, image, part, side, x, y, scale, colours) {
  const width = part.time[side] * scale;
  if (width < THIN) return;
  const fill = partColour(icicle, part, colours), found = icicle.wanted && matches(part, icicle.wanted);
  const group = svg("g", { "data-part": part.at, "data-side": side, class: "part mark", opacity: icicle.wanted && !found ? 0.35 : null });
  group.append(svg("rect", {
    x, y, width: Math.max(width, 0.8), height: PART - 1, fill, stroke: found ? colours.ink : colours.paper,
    "stroke-width": width > 3 ? (found ? 1.5 : 1) : 0, "stroke-dasharray": part.level === "rest" ? "2 2" : null,
  }));
  const text = width > 26 ? shortened(part.name, width - 8) : "";
  if (text === part.name || text.length > 5) group.append(label(text, x + 4, y + PART / 2, { "dominant-baseline": "central", fill: inkOn(fill) }));
  icicle.boxes.set(`${side} ${part.at}`, { x, y, width });
  image.append(group);
  let left = x;
  for (const inner of part.parts) {
    drawParts(icicle, image, inner, side, left, y + PART, scale, colours);
    left += inner.time[side] * scale;
  }
}

// What a part is and how long it took, on each side.
function partText(icicle, part) {
  const { mark, parts: [all] } = icicle, lines = [part.name], above = pathOf(part).slice(1, -1).map(({ name }) => name);
  if (above.length) lines.push(`in ${above.join(" › ")}`);
  if (part.category >= 0) lines.push(`${part.level}, ${mark.categories[part.category] || "no category"}`);
  else if (part.level !== "profile") lines.push(part.level === "rest" ? "drawn together" : part.level);
  part.time.forEach((time, side) => {
    const several = mark.steps[side] > 1, share = all.time[side] ? `, ${shown(time / all.time[side], "%")} of all` : "";
    const count = `${digits(part.count[side] / mark.steps[side], 6)} ${mark.steps[side] === 1 && part.count[side] === 1 ? "time" : "times"}${several ? " per step" : ""}`;
    lines.push(`${mark.sides.length > 1 ? `${mark.sides[side]}: ` : ""}${shown(time / 1e9, "s")}${share}, ${count}`);
  });
  if (mark.sides.length > 1) {
    const [one, two] = part.time, more = two - one;
    lines.push(!one ? "only in the second" : !two ? "only in the first" : `${more < 0 ? "" : "+"}${shown(more / 1e9, "s")} (${more < 0 ? "" : "+"}${shown(two / one - 1, "%")})`);
  }
  return lines.join("\n");
}

function pointAt(icicle, part, side) {
  icicle.found = part;
  icicle.side = side;
  const box = part && icicle.boxes.get(`${side} ${part.at}`);
  icicle.overlay.replaceChildren(...(box ? [svg("rect", { ...box, width: Math.max(box.width, 2), height: PART - 1, fill: "none", stroke: icicle.colours.focus, "stroke-width": 2.5, rx: 1, class: "found" })] : []));
  return box;
}

// The search, the way back, the colours; and what pointer and keys do.
function equipIcicle(place, figure) {
  const icicle = icicleOf(figure);
  if (icicle.redraw) { icicle.redraw(); return; }
  const { search, count, legend } = addTools(place, "parts", "name of a part", "Click a part, or choose it with the arrow keys and press Enter, to enlarge it; Escape goes back.");
  const crumbs = make("p");
  crumbs.className = "crumbs script";
  place.before(crumbs);
  toolsOf(place).append(saver("SVG", () => saveFigure(place)));
  const draw = () => drawIcicle(place, figure, place.clientWidth, palette());
  const enlarge = (part) => { icicle.top = part; hideTip(); draw(); };
  icicle.redraw = () => {
    crumbs.replaceChildren(...pathOf(icicle.top).flatMap((part, at) => {
      const made = button(shortened(part.name, 220), "Show this part", () => enlarge(part));
      made.disabled = part === icicle.top;
      return at ? [" › ", made] : [made];
    }));
    count.textContent = icicle.wanted ? foundText(icicle) : "";
    legend.replaceChildren(...(icicle.mark.sides.length > 1 ? sideChips(icicle) : categoryChips(icicle)));
  };
  icicle.redraw();
  search.addEventListener("input", () => { icicle.wanted = search.value.trim().toLowerCase(); draw(); });
  search.addEventListener("keydown", (event) => { if (event.key === "Escape") { search.value = icicle.wanted = ""; draw(); } });
  const partAt = (event) => {
    const group = event.target.closest?.("[data-part]");
    return group ? [icicle.parts[group.dataset.part], Number(group.dataset.side)] : null;
  };
  place.addEventListener("pointermove", (event) => {
    const found = partAt(event);
    if (!found) { hideTip(); return; }
    pointAt(icicle, ...found);
    showTip(event, partText(icicle, found[0]));
  });
  place.addEventListener("pointerleave", hideTip);
  place.addEventListener("click", (event) => {
    const found = partAt(event);
    if (!found) return;
    [icicle.found, icicle.side] = found;
    enlarge(found[0] === icicle.top && found[0].parent ? found[0].parent : found[0]);
  });
  place.addEventListener("blur", () => { hideTip(); pointAt(icicle, null, 0); });
  place.addEventListener("keydown", (event) => {
    if (isModified(event)) return;
    const { found, top, side = 0 } = icicle, near = pathOf(found).includes(top) ? found : null;
    const beside = (step) => {
      const drawn = near?.parent && near !== top ? near.parent.parts.filter((each) => icicle.boxes.has(`${side} ${each.at}`)) : [];
      return drawn[drawn.indexOf(near) + step] ?? near ?? top;
    };
    const down = near?.parts.find((each) => icicle.boxes.has(`${side} ${each.at}`));
    const other = icicle.mark.sides.length > 1 ? 1 - side : side;
    const moves = {
      ArrowDown: () => [near ? down ?? near : top, side], ArrowUp: () => [near && near !== top ? near.parent : top, side],
      ArrowRight: () => [beside(1), side], ArrowLeft: () => [beside(-1), side], Home: () => [top, side],
      PageDown: () => [near ?? top, other], PageUp: () => [near ?? top, other],
    };
    if (moves[event.key]) {
      const box = pointAt(icicle, ...moves[event.key]()), text = partText(icicle, icicle.found), at = place.getBoundingClientRect();
      if (box) showTip({ clientX: at.left + box.x + Math.min(box.width / 2, 200), clientY: at.top + box.y + PART }, text);
      tell(text);
    } else if (event.key === "Enter" || event.key === "+") enlarge(near ?? top);
    else if (event.key === "Escape" || event.key === "-") enlarge(top.parent ?? top);
    else return;
    event.preventDefault();
  });
}

// How much a search found: parts within others that were found do not count again.
function foundText(icicle) {
  const found = icicle.parts.filter((part) => matches(part, icicle.wanted)), set = new Set(found);
  const outermost = found.filter((part) => !pathOf(part.parent).some((each) => set.has(each)));
  const sums = icicle.mark.sides.map((_, side) => outermost.reduce((sum, part) => sum + part.time[side], 0));
  const all = icicle.parts[0].time;
  return `${found.length} ${found.length === 1 ? "part" : "parts"}: ${sums.map((sum, side) => `${shown(sum / 1e9, "s")} (${shown(all[side] ? sum / all[side] : 0, "%")})`).join(" and ")}`;
}

function chip(colour, text) {
  const sign = make("i");
  sign.style.background = colour;
  const made = make("span", sign, text);
  made.className = "chip";
  return made;
}
function categoryChips({ mark, parts, colours }) {
  const present = new Set(parts.map((part) => part.category)), of = new Map();
  mark.categories.forEach((name, at) => {
    const colour = colours.kinds[mark.colours[at]];
    if (present.has(at)) of.set(colour, [...(of.get(colour) ?? []), name || "no category"]);
  });
  return [...of].map(([colour, names]) => chip(colour, names.join(", ")));
}
function sideChips({ mark, colours }) {
  const of = (side) => colours.series[mark.series[side] % 8];
  return [chip(of(0), `longer in ${mark.sides[0]}`), chip(colours.grid, "the same"), chip(of(1), `longer in ${mark.sides[1]}`)];
}

drawers.set("icicle", { draw: drawIcicle, height: icicleHeight });
