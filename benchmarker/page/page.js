"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("scripted");
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const byKey = new Map(figures.map((figure) => [figure.key, figure]));
  const printing = matchMedia("print");
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const NARROW = 640, PRINTED = 660;
  const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "cross", "x", "star", "triangle-down"];
  const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "5px 2px", "2px 4px"];
  const PATTERNS = ["", "/", ".", "\\", "x", "-", "|", "+"];

  // Theme: the system preference until the reader chooses; print is always light.
  let chosen = null;
  const toggle = document.getElementById("theme");
  const isDark = () => !printing.matches && (chosen === null ? prefersDark.matches : chosen);
  function applyTheme() {
    root.dataset.theme = isDark() ? "dark" : "light";
    toggle.textContent = isDark() ? "Light" : "Dark";
    toggle.setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"} colours`);
    toggle.setAttribute("aria-pressed", String(isDark()));
  }
  toggle.addEventListener("click", () => { chosen = !isDark(); applyTheme(); drawAll(); });
  prefersDark.addEventListener("change", () => { applyTheme(); drawAll(); });

  // Figures.
  function palette() {
    const style = getComputedStyle(root);
    const of = (name) => style.getPropertyValue(name).trim();
    return {
      series: Array.from({ length: 8 }, (_, index) => of(`--s${index}`)),
      kinds: Array.from({ length: 9 }, (_, index) => of(`--k${index}`)),
      ink: of("--ink"), muted: of("--muted"), grid: of("--grid"), line: of("--line"), paper: of("--paper"), raised: of("--raised"),
    };
  }

  function themed(trace, colours, figure) {
    const { series, look, stacked, symbol, ...rest } = trace;
    const colour = stacked ? colours.kinds[series % 9] : colours.series[series % 8];
    const made = { ...rest };
    for (const axis of ["error_x", "error_y"].filter((name) => made[name])) {
      made[axis] = { ...made[axis], color: trace.type === "bar" ? colours.ink : colour, thickness: 1.5, width: 4 };
    }
    if (trace.type === "bar") {
      made.width = 0.62;
      made.marker = { color: colour, line: { color: colours.paper, width: stacked ? 1 : 0 } };
      if (stacked) made.marker.pattern = { shape: PATTERNS[series % 8], bgcolor: colour, fgcolor: colours.paper, size: 7, solidity: 0.18 };
    } else if (trace.type === "box") {
      made.line = { color: colour, width: 1.8 };
      made.fillcolor = colour + "40";
      made.width = 0.55;
    } else if (trace.type === "heatmap") {
      made.colorscale = [[0, colours.series[0]], [0.5, colours.paper], [1, colours.series[1]]];
      Object.assign(made, { xgap: 1, ygap: 1, hoverongaps: false });
      made.colorbar = { tickformat: "+.0%", tickfont: { color: colours.muted }, outlinewidth: 0, thickness: 12, len: 300, lenmode: "pixels", y: 1, yanchor: "top" };
    } else {
      made.line = { color: colour, width: look === "line" ? 1.5 : 2, dash: DASHES[symbol % 8] };
      made.marker = { color: colour, symbol: SYMBOLS[symbol % 8], size: look.startsWith("small") ? 7 : 11, line: { color: colours.paper, width: 1 } };
      if (look === "small") Object.assign(made.marker, { color: colours.ink, symbol: "circle-open", line: { color: colours.ink, width: 1.5 } });
      if (look === "hollow") Object.assign(made.marker, { symbol: `${SYMBOLS[symbol % 8]}-open`, line: { color: colour, width: 1.5 } });
      if (made.mode === "lines") delete made.marker;
      if (made.text) Object.assign(made, { textposition: sides(made.x, figure), textfont: { color: colours.ink, size: 12 }, cliponaxis: false });
    }
    return made;
  }

  // Place each label on the side of its point that has room.
  function sides(x, figure) {
    const all = figure.traces.flatMap((trace) => trace.x);
    const middle = figure.layout.xaxis.type === "log"
      ? Math.sqrt(Math.min(...all) * Math.max(...all)) : (Math.min(...all) + Math.max(...all)) / 2;
    return x.map((value) => (value <= middle ? "middle right" : "middle left"));
  }

  function layoutOf(figure, width, colours) {
    const narrow = width < NARROW, rows = figure.rows;
    const axis = (given) => ({
      ...given, gridcolor: colours.grid, linecolor: colours.line, zerolinecolor: colours.line, automargin: true, nticks: narrow ? 5 : 9,
      title: { ...given.title, font: { color: colours.muted, size: 13 }, standoff: 12 }, tickfont: { color: colours.muted },
    });
    const layout = {
      ...figure.layout, width, autosize: false, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: colours.ink },
      margin: { l: narrow ? 8 : 60, r: 20, t: 12, b: 50 }, dragmode: false, hovermode: "closest",
      hoverlabel: { bgcolor: colours.raised, bordercolor: colours.line, font: { color: colours.ink }, align: "left", namelength: -1 },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: colours.muted, activecolor: colours.ink },
      legend: { orientation: "h", y: 1, yanchor: "bottom", x: 0, traceorder: "normal", font: { color: colours.ink } },
      shapes: figure.layout.shapes.map((shape) => (shape.type === "rect"
        ? { ...shape, fillcolor: colours.grid, line: { width: 0 } } : { ...shape, line: { color: colours.muted, width: 1.5, dash: "dot" } })),
      xaxis: axis(figure.layout.xaxis),
    };
    const legend = figure.layout.showlegend ? 24 * Math.ceil(figure.traces.filter((trace) => trace.showlegend !== false).length / (narrow ? 2 : 4)) : 0;
    if (rows.length) {
      const at = rows.map((_, index) => index);
      const low = figure.dense, high = low ? 16 : narrow ? 52 : 36;
      layout.height = Math.max(low ? 240 : 0, high * rows.length + 84 + legend);
      layout.yaxis = {
        range: [rows.length - 0.5, narrow && !low ? -0.75 : -0.5], tickmode: "array", tickvals: at, ticktext: rows, showticklabels: low || !narrow,
        ticks: "outside", ticklen: 6, tickcolor: "rgba(0,0,0,0)",
        automargin: true, fixedrange: true, zeroline: false, showgrid: false, tickfont: { color: colours.ink },
      };
      if (low) layout.margin.t = 40;
      if (narrow && !low) {
        layout.annotations = at.map((index) => ({
          text: rows[index], x: 0, xref: "paper", xanchor: "left", y: index, yref: "y", yshift: 24, showarrow: false, font: { size: 12 },
        }));
      }
    } else {
      layout.height = (narrow ? 320 : 400) + legend;
      layout.yaxis = axis(figure.layout.yaxis);
    }
    return layout;
  }

  const placeOf = (figure) => document.getElementById(`plot-${figure.key}`);
  const widthOf = (figure) => (printing.matches ? PRINTED : placeOf(figure).clientWidth);
  // Plotly takes long to start, so it starts with the first figure that is drawn.
  function startPlotly() {
    const script = document.createElement("script");
    script.textContent = document.getElementById("plotly").textContent;
    document.head.append(script);
  }
  function draw(figure) {
    const place = placeOf(figure), width = widthOf(figure);
    if (!width) return;
    if (!window.Plotly) startPlotly();
    const colours = palette();
    Plotly.react(place, figure.traces.map((trace) => themed(trace, colours, figure)), layoutOf(figure, width, colours), {
      displaylogo: false, modeBarButtons: [["toImage"]], responsive: false, showTips: false,
    });
    place.dataset.drawn = "yes";
  }
  // Draw figures when they are scrolled to, and all of them before printing. Until then, they take the same space.
  const drawAll = () => figures.forEach((figure) => {
    if (printing.matches || placeOf(figure).dataset.drawn) draw(figure);
    else reserve(figure, palette());
  });
  function reserve(figure, colours) {
    placeOf(figure).style.minHeight = `${layoutOf(figure, widthOf(figure), colours).height}px`;
  }
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries.filter((each) => each.isIntersecting)) {
      seen.unobserve(entry.target);
      draw(byKey.get(entry.target.dataset.figure));
    }
    root.dataset.drawn ||= String(Math.round(performance.now()));
  }, { rootMargin: "50%" });

  applyTheme();
  // In print, open all folded parts except the data of figures.
  const folded = [...document.querySelectorAll("details.fold")];
  let closed = [];
  printing.addEventListener("change", () => {
    applyTheme();
    if (printing.matches) closed = folded.filter((each) => !each.open);
    closed.forEach((each) => { each.open = printing.matches; });
    drawAll();
  });
  let width = innerWidth, waiting = 0;
  addEventListener("resize", () => {
    if (innerWidth === width || printing.matches) return;
    width = innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(drawAll, 150);
  });

  // Tables: sorting, filtering, CSV.
  const numeric = (cell) => cell.classList.contains("number");
  const raw = (cell) => {
    if (!numeric(cell)) return cell.textContent;
    return cell.dataset.v === undefined || cell.dataset.v === "" ? null : Number(cell.dataset.v);
  };
  function sort(header) {
    const table = header.closest("table"), body = table.tBodies[0], column = header.cellIndex;
    const down = header.getAttribute("aria-sort") === (numeric(header) ? "none" : "ascending")
      || (numeric(header) && header.getAttribute("aria-sort") === "ascending");
    const compare = new Intl.Collator("en", { numeric: true }).compare;
    const rows = [...body.rows].map((row) => [raw(row.cells[column]), row]);
    rows.sort(([one], [two]) => {
      if (one === null || two === null) return (one === null) - (two === null);
      const order = typeof one === "number" ? one - two : compare(one, two);
      return down ? -order : order;
    });
    for (const each of table.tHead.rows[0].cells) each.setAttribute("aria-sort", "none");
    header.setAttribute("aria-sort", down ? "descending" : "ascending");
    body.append(...rows.map(([, row]) => row));
  }
  function filter(box) {
    const wanted = box.querySelector("input").value.toLowerCase(), rows = [...box.querySelector("tbody").rows];
    let shown = 0;
    for (const row of rows) {
      row.hidden = !row.textContent.toLowerCase().includes(wanted);
      shown += !row.hidden;
    }
    box.querySelector(".count").textContent = wanted ? `${shown} of ${rows.length} rows` : "";
  }
  // Prefix text that a spreadsheet would read as a formula with an apostrophe; leave numbers unchanged.
  function field(value) {
    if (value === null || value === undefined) return "";
    if (typeof value !== "string") return String(value);
    const safe = /^[\s]*[=+\-@]/.test(value) || /^[\t\r]/.test(value) ? `'${value}` : value;
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  }
  const csv = (columns, rows) => [columns, ...rows].map((row) => row.map(field).join(",")).join("\r\n") + "\r\n";
  function save(name, text) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob(["\ufeff", text], { type: "text/csv;charset=utf-8" }));
    link.download = `${name.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-+|-+$/g, "") || "data"}.csv`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }
  function make(name, ...children) {
    const made = document.createElement(name);
    made.append(...children);
    return made;
  }
  function dataTable({ columns, rows }) {
    const numbers = columns.map((_, index) => rows.some((row) => typeof row[index] === "number"));
    const head = columns.map(({ name, unit }, index) => {
      const button = make("button", unit ? `${name} (${unit})` : name, document.createElement("span"));
      button.type = "button";
      const header = make("th", button);
      header.scope = "col";
      header.setAttribute("aria-sort", "none");
      header.classList.toggle("number", numbers[index]);
      return header;
    });
    const body = rows.map((row) => make("tr", ...row.map((value, index) => {
      const shown = typeof value === "number" ? Number(value.toPrecision(6)) : typeof value === "boolean" ? (value ? "yes" : "no") : value;
      const cell = make("td", String(shown ?? "-"));
      if (numbers[index]) { cell.className = "number"; cell.dataset.v = value ?? ""; }
      return cell;
    })));
    const scroll = make("div", make("table", make("thead", make("tr", ...head)), make("tbody", ...body)));
    scroll.className = "scroll";
    scroll.tabIndex = 0;
    return scroll;
  }
  const MOST_ROWS = 2000;
  document.querySelectorAll("details.data").forEach((details) => details.addEventListener("toggle", () => {
    if (!details.open || details.querySelector(".scroll")) return;
    const { data } = byKey.get(details.dataset.figure);
    const button = make("button", "Download CSV");
    Object.assign(button, { type: "button", className: "csv" });
    button.addEventListener("click", () => save(details.dataset.figure, csv(data.columns.map(({ name }) => name), data.rows)));
    const tools = make("p", button);
    tools.className = "tools script";
    if (data.rows.length > MOST_ROWS) tools.append(` Only the first ${MOST_ROWS} rows are shown; the CSV has all ${data.rows.length}.`);
    details.append(tools, dataTable({ ...data, rows: data.rows.slice(0, MOST_ROWS) }));
  }));
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.closest("th")) sort(button.closest("th"));
    else if (button.dataset.name !== undefined) {
      const table = button.closest(".table").querySelector("table");
      const cells = (row) => [...row.cells].map((cell) => (row.parentElement.tagName === "THEAD" ? cell.dataset.name : raw(cell)));
      const [head, ...rows] = [...table.rows].filter((row) => row.parentElement.tagName !== "TFOOT").map(cells);
      save(button.dataset.name, csv(head, rows));
    }
  });
  document.querySelectorAll("[data-searched]").forEach((box) => box.querySelector("input").addEventListener("input", () => filter(box)));

  const colours = figures.length ? palette() : null;
  for (const figure of figures) reserve(figure, colours);
  for (const figure of figures) seen.observe(placeOf(figure));
  if (!figures.length) root.dataset.drawn = "0";
})();
