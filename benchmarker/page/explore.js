// Look closer at a figure: the nearest mark under the pointer, marks one by one with the keyboard, zoom along x, save.
const NEAR = 48;  // Pixels from a mark within which the pointer finds it

// Where the pointer is in an element, in pixels.
function within(place, event) {
  const box = place.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}

function apart(target, x, y) {
  const across = Math.max(target.x - x, 0, x - target.x - target.width), up = Math.max(target.y - y, 0, y - target.y - target.height);
  return [Math.hypot(across, up), across];
}

// The mark of a row that is nearest along x, or, without rows, the nearest mark.
function nearest(plot, x, y) {
  const { frame, pitch, targets, figure } = plot;
  if (y < frame.y - 8 || y > frame.y + frame.height + 8 || x < frame.x - 12 && !figure.rows.length) return null;
  const row = pitch ? Math.floor((y - frame.y) / pitch) : null;
  let best = null, least = pitch ? [Infinity, Infinity] : [NEAR, NEAR];
  for (const target of targets) {
    if (row !== null && target.group !== row) continue;
    const [distance, across] = apart(target, x, y), found = row === null ? [distance, across] : [across, distance];
    if (found[0] < least[0] || (found[0] === least[0] && found[1] < least[1])) { best = target; least = found; }
  }
  return best;
}

function point(plot, target) {
  const outline = { fill: "none", stroke: plot.colours.ink, "stroke-width": 1.5, rx: 4, class: "found" };
  plot.found = target;
  plot.overlay.replaceChildren(...(target ? [svg("rect", { x: target.x - 3, y: target.y - 3, width: Math.max(0, target.width) + 6, height: target.height + 6, ...outline })] : []));
}

function leave(place) {
  hideTip();
  const plot = plots.get(place);
  if (plot) point(plot, null);
}

const isModified = (event) => event.ctrlKey || event.altKey || event.metaKey;

function explore(place, redraw) {
  const look = (plot, event) => {
    const target = nearest(plot, ...within(place, event));
    if (target !== plot.found) point(plot, target);
    if (target) showTip(event, target.text); else hideTip();
  };
  let start = null;  // Of a drag, in pixels; fingers scroll the page instead
  const inside = (plot, x) => Math.max(plot.frame.x, Math.min(plot.frame.x + plot.frame.width, x));
  place.addEventListener("pointermove", (event) => {
    const plot = plots.get(place), [x, y] = within(place, event);
    if (!plot) return;
    if (start !== null) {
      const [left, right] = [start, inside(plot, x)].sort((one, two) => one - two);
      hideTip();
      plot.overlay.replaceChildren(svg("rect", { class: "selection", x: left, y: plot.frame.y, width: right - left, height: plot.frame.height, fill: plot.colours.ink, "fill-opacity": 0.12, stroke: plot.colours.muted }));
      return;
    }
    look(plot, event);
  });
  place.addEventListener("pointerdown", (event) => {
    const plot = plots.get(place);
    if (plot && event.pointerType === "touch") look(plot, event);
    if (!plot || event.button || event.pointerType === "touch" || !plot.full) return;
    const [x, y] = within(place, event), { frame } = plot;
    if (x < frame.x || x > frame.x + frame.width || y < frame.y || y > frame.y + frame.height) return;
    start = x;
    place.setPointerCapture(event.pointerId);
  });
  place.addEventListener("pointerup", (event) => {
    if (start === null) return;
    const plot = plots.get(place), [left, right] = [start, inside(plot, within(place, event)[0])].sort((one, two) => one - two);
    start = null;
    point(plot, null);
    if (right - left > 6) zoom(place, plot.along.invert(left), plot.along.invert(right), redraw);
  });
  place.addEventListener("pointercancel", () => { start = null; leave(place); });
  place.addEventListener("pointerleave", (event) => { if (start === null && event.pointerType !== "touch") leave(place); });
  place.addEventListener("blur", () => leave(place));
  place.addEventListener("dblclick", () => unzoom(place, redraw));
  place.addEventListener("keydown", (event) => {
    const plot = plots.get(place);
    if (!plot || isModified(event)) return;
    const act = KEYS[event.key];
    if (!act) return;
    event.preventDefault();
    act(place, plot, redraw);
  });
}

function zoom(place, low, high, redraw) {
  const { figure, full: [least, most] } = plots.get(place);
  const ends = [Math.max(least, low), Math.min(most, high)];
  if (!(ends[1] > ends[0]) || ends[1] - ends[0] < 1e-9 * Math.abs(ends[1])) return;
  if (ends[0] <= least && ends[1] >= most) return unzoom(place, redraw);
  views.set(figure.key, ends);
  redraw();
}
function unzoom(place, redraw) {
  const { figure } = plots.get(place);
  if (views.delete(figure.key)) redraw();
}
function zoomBy(share) {
  return (place, plot, redraw) => {
    const { frame, along, full, found } = plot;
    if (!full) return;
    const middle = found ? found.x + found.width / 2 : frame.x + frame.width / 2, left = middle - (middle - frame.x) * share;
    zoom(place, along.invert(left), along.invert(left + frame.width * share), redraw);
  };
}

// Move to another mark: show its tip beside it, and tell it.
function move(choose) {
  return (place, plot) => {
    const { targets, found } = plot, target = found ? choose(targets, targets.indexOf(found)) : targets[0];
    if (!target) return;
    point(plot, target);
    const box = place.getBoundingClientRect(), x = box.left + target.x + target.width / 2, y = box.top + target.y + target.height / 2;
    if (y < 0 || y > innerHeight) scrollBy({ top: y - innerHeight / 2, behavior: "instant" });
    const now = place.getBoundingClientRect();
    showTip({ clientX: x, clientY: now.top + target.y + target.height / 2 }, target.text);
    tell(target.text);
  };
}
// The nearest mark along x in the next group, that is the next row or line.
function across(step) {
  return (targets, at) => {
    const { group, x } = targets[at], groups = [...new Set(targets.map((each) => each.group))], next = groups[groups.indexOf(group) + step];
    const those = targets.filter((each) => each.group === next);
    return those.reduce((best, each) => (best && Math.abs(best.x - x) <= Math.abs(each.x - x) ? best : each), null) ?? targets[at];
  };
}
const KEYS = {
  ArrowRight: move((targets, at) => targets[Math.min(at + 1, targets.length - 1)]),
  ArrowLeft: move((targets, at) => targets[Math.max(at - 1, 0)]),
  ArrowDown: move(across(1)),
  ArrowUp: move(across(-1)),
  Home: move((targets) => targets[0]),
  End: move((targets) => targets.at(-1)),
  "+": zoomBy(0.5), "=": zoomBy(0.5), "-": zoomBy(2),
  Escape: (place, plot, redraw) => { leave(place); unzoom(place, redraw); },
};

// Above a figure, a search with what it found, buttons, and what pointer and keys do; below it, a legend.
function addTools(place, what, placeholder, hint, ...buttons) {
  const search = make("input"), count = make("span"), how = make("span", hint), legend = make("p");
  Object.assign(search, { type: "search", placeholder });
  search.setAttribute("aria-label", `Search ${what}`);
  count.className = "count";
  count.setAttribute("role", "status");
  how.className = "hint";
  how.id = `${place.id}-keys`;
  place.setAttribute("aria-describedby", `${place.dataset.figure}-caption ${how.id}`);
  const tools = make("p", make("label", "Search ", search), ...buttons, count, how);
  tools.className = "tools script";
  legend.className = "chips";
  place.before(tools);
  place.after(legend);
  return { search, count, legend };
}

const toolsOf = (place) => place.closest("figure").querySelector(".figure-tools");
const saver = (form, act) => button(`Save ${form}`, "Save the figure as a picture", act);

// Save a figure as it is drawn, with its title.
function saveFigure(place) {
  const image = place.querySelector("svg").cloneNode(true), { figure: { key }, width, height, colours } = plots.get(place);
  const title = document.getElementById(`${key}-title`).firstChild.textContent, lines = wrapped(title, width, 16);
  const top = 14 + 21 * lines.length;
  image.querySelector(".overlay").remove();
  image.setAttribute("viewBox", `-12 ${-top} ${width + 24} ${height + top + 12}`);
  image.setAttribute("width", width + 24);
  image.setAttribute("height", height + top + 12);
  image.removeAttribute("aria-hidden");
  image.prepend(
    svg("title", {}, title),
    svg("rect", { x: -12, y: -top, width: width + 24, height: height + top + 12, fill: colours.paper }),
    ...lines.map((line, at) => label(line, 0, 22 - top + 21 * at, { "font-size": 16, "font-weight": 600, fill: colours.ink })),
  );
  save(key, new XMLSerializer().serializeToString(image), "svg", "image/svg+xml");
}
