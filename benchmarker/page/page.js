// The page as a whole: theme, drawing figures when they are scrolled to, print, links to its parts.
const printed = matchMedia("print");
const prefersDark = matchMedia("(prefers-color-scheme: dark)");
const PRINTED = 660;  // Width of figures in print, in pixels
// Kept from the event: Chromium sends none for a change that a read of `matches` saw first.
let printing = printed.matches;

// Theme: the system preference until the reader chooses; print is always light.
let chosen = null;
const toggle = document.getElementById("theme");
const isDark = () => !printing && (chosen === null ? prefersDark.matches : chosen);
function applyTheme() {
  root.dataset.theme = isDark() ? "dark" : "light";
  toggle.textContent = isDark() ? "Light" : "Dark";
  toggle.setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"} colours`);
  toggle.setAttribute("aria-pressed", String(isDark()));
}
toggle.addEventListener("click", () => { chosen = !isDark(); applyTheme(); drawAll(); });
prefersDark.addEventListener("change", () => { applyTheme(); drawAll(); });

// Figures are drawn when they are scrolled to, and all of them before printing. Until then, they take the same space.
const drawerOf = (figure) => drawers.get(figure.marks[0].type) ?? { draw: drawFigure, height: (each, width) => planOf(each, width).height };
const placeOf = (figure) => document.getElementById(`plot-${figure.key}`);
const widthAt = (figure) => (printing ? PRINTED : placeOf(figure).clientWidth);
function draw(figure) {
  const place = placeOf(figure), width = widthAt(figure);
  if (!width) return;
  drawerOf(figure).draw(place, figure, width, palette());
  place.dataset.drawn = "yes";
}
function reserve(figure) {
  const width = widthAt(figure);
  if (width) placeOf(figure).style.minHeight = `${drawerOf(figure).height(figure, width)}px`;
}
const drawAll = () => figures.forEach((figure) => (printing || placeOf(figure).dataset.drawn ? draw : reserve)(figure));
const seen = new IntersectionObserver((entries) => {
  for (const entry of entries.filter((each) => each.isIntersecting)) {
    seen.unobserve(entry.target);
    draw(byKey.get(entry.target.dataset.figure));
  }
  root.dataset.drawn ||= String(Math.round(performance.now()));
}, { rootMargin: "50%" });

// In print, all folded parts are open except the data of figures.
const folded = [...document.querySelectorAll("details.fold")];
let closed = [];
printed.addEventListener("change", (event) => {
  printing = event.matches;
  applyTheme();
  if (printing) closed = folded.filter((each) => !each.open);
  closed.forEach((each) => { each.open = printing; });
  drawAll();
});
let lastWidth = innerWidth, waiting = 0;
addEventListener("resize", () => {
  if (innerWidth === lastWidth || printing) return;
  lastWidth = innerWidth;
  clearTimeout(waiting);
  waiting = setTimeout(drawAll, 150);
});

// The buttons of a figure; `reset` shows while it is zoomed.
function equip(figure) {
  const place = placeOf(figure);
  if (drawers.has(figure.marks[0].type)) return;
  const reset = button("Reset zoom", "Show all of the axis again", () => { unzoom(place, redraw); place.focus(); });
  function redraw() {
    draw(figure);
    reset.hidden = !views.has(figure.key);
  }
  reset.hidden = true;
  toolsOf(place).append(reset, saver("SVG", () => { draw(figure); saveFigure(place); }));
  explore(place, redraw);
}

// A link into a folded part opens it. Profiles before its target, whose controls take space, are drawn first.
function follow() {
  const target = document.querySelector(":target");
  for (let fold = target?.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
  const isLate = (place) => !place.dataset.drawn && place.compareDocumentPosition(target) & Node.DOCUMENT_POSITION_FOLLOWING;
  const late = target ? figures.filter((each) => drawers.has(each.marks[0].type) && isLate(placeOf(each))) : [];
  late.forEach(draw);
  if (late.length || target?.closest("details")) target.scrollIntoView();
}
addEventListener("hashchange", follow);
addEventListener("load", follow);  // Before, no part is the target

applyTheme();
figures.forEach(reserve);
for (const figure of figures) {
  equip(figure);
  seen.observe(placeOf(figure));
}
if (!figures.length) root.dataset.drawn = "0";
