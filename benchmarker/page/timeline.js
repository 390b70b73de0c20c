// A time line: lanes of streams and threads with what ran on them, and the gaps of devices. It is drawn on a canvas, as
// it may have thousands of boxes; keys move from box to box and tell what each is.
const ROW = 16, HEAD = 17, AXIS = 22, SHORTEST = 20;  // Heights in pixels: of a row, of a lane's name, of the axis; ns that fill the width at most
const timelines = new Map();  // By key of a figure: its rows of boxes, the time that is shown, the box that is pointed at

function timelineOf(figure) {
  if (timelines.has(figure.key)) return timelines.get(figure.key);
  const [mark] = figure.marks, named = (number) => mark.labels[number] ?? "";
  const rows = [], tops = [];
  let y = AXIS;
  for (const [, levels] of mark.lanes) {
    tops.push(y);
    y += HEAD + levels * ROW + 5;
  }
  const boxes = mark.boxes.map(([lane, level, begin, span, ns, several, group, label, op, scope]) => {
    const [kind, family, colour] = mark.groups[group] ?? ["", "host", -1];
    return {
      lane, begin, span, end: begin + span, ns, rows: several, group, kind, family, colour,
      name: named(label), op: named(op), scope: named(scope), y: tops[lane] + HEAD + level * ROW, part: [0, 1],
    };
  });
  for (const box of boxes) {
    const last = rows.at(-1);
    if (last && last[0].y === box.y) last.push(box); else rows.push([box]);
  }
  rows.forEach(divide);
  const made = { mark, rows, boxes, tops, height: y, from: 0, to: mark.length_ns, found: null, wanted: "", group: -1 };
  timelines.set(figure.key, made);
  return made;
}

// Boxes of one row that begin and end together are parts of one: what short rows of several groups took, one above the other.
function divide(row) {
  for (let at = 0; at < row.length;) {
    let next = at + 1;
    while (next < row.length && row[next].begin === row[at].begin && row[next].span === row[at].span) next += 1;
    const parts = row.slice(at, next), whole = parts.reduce((sum, box) => sum + box.ns, 0);
    let so = 0;
    if (parts.length > 1) for (const box of parts) box.part = [so, so += whole ? box.ns / whole : 1 / parts.length];
    at = next;
  }
}

function boxColour(box, colours) {
  if (box.family === "work") return colours.kinds[box.colour];
  if (box.family === "copy") return colours.copy;
  if (box.family === "idle") return colours.idle[box.colour];
  return mixed(colours.paper, colours.ink, box.colour < 0 ? 0.1 : [0.12, 0.2, 0.32, 0.06][box.colour]);
}

function drawTimeline(place, figure, width, colours) {
  const line = timelineOf(figure), ratio = Math.max(printing ? 2 : 1, devicePixelRatio);
  equipTimeline(place, figure);
  line.width = width;
  Object.assign(place.dataset, { from: line.from, to: line.to });
  const { canvas: sheet, height, from, to } = line, pen = sheet.getContext("2d");
  sheet.width = Math.round(width * ratio);
  sheet.height = Math.round(height * ratio);
  Object.assign(sheet.style, { width: `${width}px`, height: `${height}px` });
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.textBaseline = "middle";
  const x = (ns) => ((ns - from) / (to - from)) * width;
  drawTicks(line, pen, x, colours);
  pen.font = `11px ${family()}`;
  const letter = pen.measureText("n").width;
  for (const row of line.rows) {
    for (const box of row) {
      if (box.end < from || box.begin > to) continue;
      const left = Math.max(x(box.begin), -1), wide = Math.max(Math.min(x(box.end), width + 1) - left, 0.7);
      const fill = box.rows > 1 || box.part[1] - box.part[0] < 1 ? mixed(colours.paper, boxColour(box, colours), 0.45) : boxColour(box, colours);
      const top = box.y + box.part[0] * (ROW - 2), high = (box.part[1] - box.part[0]) * (ROW - 2), hit = isFound(line, box);
      pen.globalAlpha = hit === false ? 0.22 : 1;
      pen.fillStyle = fill;
      pen.fillRect(left, top, wide > 2 ? wide - 0.6 : wide, high);
      if (hit && wide > 3) {
        pen.strokeStyle = colours.ink;
        pen.strokeRect(left + 0.5, top + 0.5, wide - 1.6, high - 1);
      }
      if (wide > 24 && high > 10) {
        const most = Math.floor((wide - 6) / letter), title = titleOfBox(box);
        const text = title.length <= most ? title : box.rows > 1 || most < 6 ? "" : `${title.slice(0, most - 1)}…`;
        pen.fillStyle = inkOn(fill);
        pen.fillText(text, left + 3, box.y + (ROW - 1) / 2, wide - 6);
      }
    }
  }
  pen.globalAlpha = 1;
  if (line.found) {
    const box = line.found, left = x(box.begin);
    pen.strokeStyle = colours.focus;
    pen.lineWidth = 2.5;
    pen.strokeRect(left - 1, box.y - 1, Math.max(x(box.end) - left, 2) + 2, ROW);
  }
}

function drawTicks({ mark, tops, from, to, width, height }, pen, x, colours) {
  pen.font = `${SMALL}px ${family()}`;
  pen.lineWidth = 1;
  for (const at of linearTicks(from, to, Math.max(2, Math.floor(width / 80)))) {
    pen.fillStyle = colours.grid;
    pen.fillRect(Math.round(x(at)), AXIS - 6, 1, height - AXIS);
    const text = shown(Math.round(at) / 1e9, "s"), wide = pen.measureText(text).width;
    pen.fillStyle = colours.muted;
    pen.fillText(text, Math.max(0, Math.min(x(at) - wide / 2, width - wide)), 8);
  }
  mark.lanes.forEach(([name], at) => {
    const text = shortened(name, width - 8);
    pen.fillStyle = colours.paper;
    pen.fillRect(0, tops[at], widthOf(text) + 6, HEAD);
    pen.fillStyle = colours.ink;
    pen.fillText(text, 0, tops[at] + HEAD / 2);
  });
}

const titleOfBox = (box) => (box.rows > 1 ? `${box.rows} ${box.family === "idle" ? "shorter gaps" : "shorter ones"}` : box.family === "idle" ? `idle: ${box.kind}` : box.name || "(no name)");

// Whether a box is among those searched for: null if nothing is.
function isFound({ wanted, group }, box) {
  if (!wanted && group < 0) return null;
  return (group < 0 || box.group === group) && (!wanted || [box.name, box.op, box.scope, box.kind].some((text) => text.toLowerCase().includes(wanted)));
}

function boxText({ mark }, box) {
  const lines = [titleOfBox(box)], time = { idle: "idle", host: "own time" }[box.family] ?? "busy";
  const kind = box.family === "idle" ? (box.rows > 1 ? `idle: ${box.kind}` : "") : box.kind || "several kinds";
  lines.push([kind, mark.lanes[box.lane][0]].filter(Boolean).join(", on "));
  lines.push(`${shown(box.span / 1e9, "s")} from ${shown(box.begin / 1e9, "s")}`);
  if (box.ns !== box.span || box.rows > 1) lines.push(`${time}${box.rows > 1 ? " in all" : ""}: ${shown(box.ns / 1e9, "s")}`);
  if (box.op) lines.push(`op: ${box.op}`);
  if (box.scope) lines.push(`scope: ${box.scope}`);
  return lines.join("\n");
}

// The box at a place in pixels; boxes that are thinner than the pointer are found too.
function boxAt(line, x, y) {
  const at = line.from + (x / line.width) * (line.to - line.from), near = (3 / line.width) * (line.to - line.from);
  let best = null, least = near;
  for (const row of line.rows) {
    if (y < row[0].y - 1 || y >= row[0].y + ROW - 1) continue;
    for (const box of row) {
      const share = (y - box.y) / (ROW - 2), away = Math.max(box.begin - at, at - box.end, 0);
      if (away < least || (away === 0 && share >= box.part[0] && share < box.part[1])) [best, least] = [box, away];
    }
  }
  return best;
}

function equipTimeline(place, figure) {
  const line = timelineOf(figure);
  if (line.canvas) { place.contains(line.canvas) || place.replaceChildren(line.canvas); line.chips(); return; }
  line.canvas = make("canvas");
  place.replaceChildren(line.canvas);
  let asked = 0;
  const draw = () => {
    cancelAnimationFrame(asked);
    asked = requestAnimationFrame(() => drawTimeline(place, figure, place.clientWidth, palette()));
  };
  const show = (from, to) => {
    const span = Math.min(Math.max(to - from, Math.min(SHORTEST, line.mark.length_ns)), line.mark.length_ns);
    line.from = Math.max(0, Math.min(from, line.mark.length_ns - span));
    line.to = line.from + span;
    draw();
  };
  const zoom = (share, at = (line.from + line.to) / 2) => show(at - (at - line.from) * share, at + (line.to - at) * share);
  const pan = (share) => show(line.from + share * (line.to - line.from), line.to + share * (line.to - line.from));
  const enlarge = (box) => show(box.begin - 0.05 * box.span, box.end + 0.05 * box.span);
  const whole = () => show(0, line.mark.length_ns);
  const middle = () => (line.found ? (line.found.begin + line.found.end) / 2 : undefined);
  const { search, count, legend } = addTools(
    place, "the time line", "kernel, op or scope", "The wheel with Ctrl, + and - enlarge, dragging moves; arrows go from box to box, Enter enlarges it, Escape shows all.",
    button("+", "Enlarge", () => zoom(0.5, middle())), button("−", "Reduce", () => zoom(2, middle())), button("Whole step", "Show all of the time line", whole),
  );
  toolsOf(place).append(saver("PNG", () => line.canvas.toBlob((image) => save(figure.key, image, "png", "image/png"))));
  line.chips = () => legend.replaceChildren(...groupChips(line, palette(), draw));
  line.chips();
  const hits = () => line.boxes.filter((box) => isFound(line, box));
  search.addEventListener("input", () => {
    line.wanted = search.value.trim().toLowerCase();
    const found = line.wanted ? hits() : [];
    count.textContent = line.wanted ? `${found.length} ${found.length === 1 ? "box" : "boxes"}, ${shown(found.reduce((sum, box) => sum + box.ns, 0) / 1e9, "s")}` : "";
    draw();
  });
  const move = (box) => {
    if (!box) return;
    line.found = box;
    const span = line.to - line.from;
    if (box.end < line.from || box.begin > line.to) show((box.begin + box.end) / 2 - span / 2, (box.begin + box.end) / 2 + span / 2);
    else draw();
    const at = place.getBoundingClientRect(), x = ((Math.max(box.begin, line.from) - line.from) / (line.to - line.from)) * line.width;
    showTip({ clientX: at.left + x, clientY: at.top + box.y + ROW }, boxText(line, box));
    tell(boxText(line, box));
  };
  search.addEventListener("keydown", (event) => {
    const found = event.key === "Enter" ? hits() : [];
    if (event.key === "Escape") { search.value = line.wanted = count.textContent = ""; draw(); }
    if (found.length) move(found[(found.indexOf(line.found) + 1) % found.length]);
  });
  let start = null;
  const inTime = (event) => line.from + (within(place, event)[0] / line.width) * (line.to - line.from);
  const at = (event) => boxAt(line, ...within(place, event));
  place.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    start = { x: event.clientX, from: line.from, to: line.to, moved: false };
    place.setPointerCapture(event.pointerId);
  });
  place.addEventListener("pointermove", (event) => {
    if (!start) {
      const box = at(event);
      if (box) showTip(event, boxText(line, box)); else hideTip();
      return;
    }
    const by = event.clientX - start.x;
    start.moved ||= Math.abs(by) > 3;
    if (!start.moved) return;
    hideTip();
    const shift = (by / line.width) * (start.to - start.from);
    show(start.from - shift, start.to - shift);
  });
  place.addEventListener("pointerup", (event) => {
    if (start && !start.moved) { line.found = at(event); draw(); }
    start = null;
  });
  place.addEventListener("pointercancel", () => { start = null; });
  place.addEventListener("pointerleave", hideTip);
  place.addEventListener("dblclick", (event) => { const box = at(event); if (box) enlarge(box); });
  place.addEventListener("blur", () => { hideTip(); line.found = null; draw(); });
  place.addEventListener("wheel", (event) => {
    const along = Math.abs(event.deltaX) > Math.abs(event.deltaY) ? event.deltaX : event.shiftKey ? event.deltaY : 0;
    if (!along && !event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    hideTip();
    if (along) pan(along / line.width);
    else zoom(Math.exp(Math.max(-100, Math.min(100, event.deltaY)) / 200), inTime(event));
  }, { passive: false });
  const beside = (step) => {
    const row = line.rows.find((each) => each.includes(line.found));
    return row ? row[row.indexOf(line.found) + step] : first();
  };
  const first = () => line.boxes.find((box) => box.end > line.from && box.begin < line.to);
  const across = (step) => {
    const row = line.rows.findIndex((each) => each.includes(line.found));
    if (row < 0) return first();
    const time = Math.max(line.found.begin, line.from), away = (box) => Math.max(box.begin - time, time - box.end, 0);
    return line.rows[row + step]?.reduce((best, box) => (away(box) < away(best) ? box : best));
  };
  const keys = {
    ArrowRight: () => move(beside(1)), ArrowLeft: () => move(beside(-1)), ArrowDown: () => move(across(1)), ArrowUp: () => move(across(-1)),
    Enter: () => line.found && enlarge(line.found), Escape: whole, Home: whole, "+": () => zoom(0.5, middle()), "=": () => zoom(0.5, middle()), "-": () => zoom(2, middle()),
    w: () => zoom(0.5, middle()), s: () => zoom(2, middle()), a: () => pan(-0.25), d: () => pan(0.25), "[": () => pan(-0.25), "]": () => pan(0.25),
  };
  place.addEventListener("keydown", (event) => {
    if (isModified(event) || !keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });
}

// The groups with the sums of their times, the longest first, causes of idle time last; a click shows where a group is.
function groupChips(line, colours, draw) {
  const sums = line.mark.groups.map(() => 0), rank = { work: 0, copy: 0, idle: 1, host: 2 };
  for (const box of line.boxes) if (box.group >= 0) sums[box.group] += box.ns;
  const order = line.mark.groups.map((group, at) => [group, at]).sort(([one, a], [two, b]) => rank[one[1]] - rank[two[1]] || sums[b] - sums[a]);
  return order.map(([[name, family, colour], at]) => {
    const made = button("", "Show where these are", () => {
      line.group = line.group === at ? -1 : at;
      line.chips();
      draw();
    });
    made.append(...chip(boxColour({ family, colour }, colours), `${family === "idle" ? "idle: " : ""}${name || "no category"}${family === "host" ? "" : ` ${shown(sums[at] / 1e9, "s")}`}`).childNodes);
    made.className = "chip";
    made.setAttribute("aria-pressed", String(line.group === at));
    return made;
  });
}

drawers.set("timeline", { draw: drawTimeline, height: (figure) => timelineOf(figure).height });
