// Tables: sorting, filtering, CSV, and the data of figures.
const numeric = (header) => header.classList.contains("number");
// The value of a cell; a long text is whole in its title.
const raw = ({ dataset: { v }, title, textContent }) => (v === undefined ? title || textContent : v === "" ? null : Number(v));
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
  let left = 0;
  for (const row of rows) {
    row.hidden = ![...row.cells].some((cell) => `${cell.title} ${cell.textContent}`.toLowerCase().includes(wanted));
    left += !row.hidden;
  }
  box.querySelector(".count").textContent = wanted ? `${left} of ${rows.length} rows` : "";
}
// Prefix text that a spreadsheet would read as a formula with an apostrophe; leave numbers unchanged.
function field(value) {
  if (value === null || value === undefined) return "";
  if (typeof value !== "string") return String(value);
  const safe = /^[\s]*[=+\-@]/.test(value) || /^[\t\r]/.test(value) ? `'${value}` : value;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
// The byte order mark tells spreadsheets that the text is UTF-8.
const csv = (columns, rows) => `\ufeff${[columns, ...rows].map((row) => row.map(field).join(",")).join("\r\n")}\r\n`;
function dataTable({ columns, rows }) {
  const numbers = columns.map((_, index) => rows.some((row) => typeof row[index] === "number"));
  const head = columns.map(({ name, unit }, index) => {
    const header = make("th", button(unit ? `${name} (${unit})` : name, "", null));
    header.firstChild.append(make("span"));
    header.scope = "col";
    header.setAttribute("aria-sort", "none");
    header.classList.toggle("number", numbers[index]);
    return header;
  });
  const body = rows.map((row) => make("tr", ...row.map((value, index) => {
    const text = typeof value === "number" ? Number(value.toPrecision(6)) : typeof value === "boolean" ? (value ? "yes" : "no") : value;
    const cell = make("td", String(text ?? "-"));
    if (numbers[index]) cell.dataset.v = value ?? "";
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
  const download = button("Download CSV", "", () => save(details.dataset.figure, csv(data.columns.map(({ name }) => name), data.rows), "csv", "text/csv"));
  download.className = "csv";
  const tools = make("p", download);
  tools.className = "tools script";
  if (data.rows.length > MOST_ROWS) tools.append(` Only the first ${MOST_ROWS} rows are shown; the CSV has all ${data.rows.length}.`);
  details.append(tools, dataTable({ ...data, rows: data.rows.slice(0, MOST_ROWS) }));
}));
document.addEventListener("click", (event) => {
  const pressed = event.target.closest("button");
  if (!pressed) return;
  if (pressed.closest("th")) sort(pressed.closest("th"));
  else if (pressed.dataset.name !== undefined) {
    const table = pressed.closest(".table").querySelector("table");
    const cells = (row) => [...row.cells].map((cell) => (row.parentElement.tagName === "THEAD" ? cell.dataset.name : raw(cell)));
    const [head, ...rows] = [...table.rows].filter((row) => row.parentElement.tagName !== "TFOOT").map(cells);
    save(pressed.dataset.name, csv(head, rows), "csv", "text/csv");
  }
});
document.querySelectorAll("[data-searched]").forEach((box) => box.querySelector("input").addEventListener("input", () => filter(box)));
