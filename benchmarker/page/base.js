// Figures and colours as the page has them, elements, widths of texts, numbers as text, and the tip.
const root = document.documentElement;
root.classList.add("scripted");

// The text in a gzip file (RFC 1952) without a name, whose Huffman codes are the fixed ones (RFC 1951, 3.2.3 to 3.2.6).
// The browser's own DecompressionStream would be ready only after the page is shown, or printed.
function unzipped(bytes) {
  const found = new Uint8Array(new DataView(bytes.buffer).getUint32(bytes.length - 4, true));
  let at = 80, end = 0;  // Bits read, the header's included, and bytes found
  const bit = () => (bytes[at >> 3] >> (at++ & 7)) & 1;
  const code = (number, first = 0) => { for (; number; number -= 1) first = 2 * first + bit(); return first; };
  const extra = (number) => { let value = 0; for (let place = 0; place < number; place += 1) value |= bit() << place; return value; };
  const symbol = () => {
    const seven = code(7);
    if (seven < 24) return 256 + seven;
    const eight = code(1, seven);
    return eight < 192 ? eight - 48 : eight < 200 ? eight + 88 : code(1, eight) - 256;
  };
  // Lengths and distances: `steps` values without extra bits, then `steps` for each further half of those bits.
  const value = (number, steps) => {
    if (number < 2 * steps) return number;
    const more = Math.floor(number / steps) - 1;
    return ((steps + (number % steps)) << more) + extra(more);
  };
  for (let last = 0; !last;) {
    last = bit();
    at += 2;  // The type of the block
    for (let next = symbol(); next !== 256; next = symbol()) {
      if (next < 256) { found[end++] = next; continue; }
      const until = end + (next === 285 ? 258 : 3 + value(next - 257, 4)), back = 1 + value(code(5), 2);
      for (; end < until; end += 1) found[end] = found[end - back];
    }
  }
  return new TextDecoder().decode(found);
}
const figures = JSON.parse(unzipped(Uint8Array.from(atob(document.getElementById("figures").textContent), (letter) => letter.charCodeAt(0))));
const byKey = new Map(figures.map((figure) => [figure.key, figure]));
const SVG = "http://www.w3.org/2000/svg";
const FONT = 13, SMALL = 12;
const drawers = new Map();  // by the type of a figure's first mark: {draw(place, figure, width, colours), height(figure, width)}

function make(name, ...children) {
  const made = document.createElement(name);
  made.append(...children);
  return made;
}

function svg(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) if (value !== null && value !== undefined) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function button(text, title, act) {
  const made = make("button", text);
  Object.assign(made, { type: "button", title });
  if (act) made.addEventListener("click", act);
  return made;
}

function palette() {
  const style = getComputedStyle(root);
  const of = (name) => style.getPropertyValue(name).trim();
  const several = (letter, number) => Array.from({ length: number }, (_, index) => of(`--${letter}${index}`));
  const names = ["ink", "muted", "grid", "line", "paper", "mark", "band", "focus", "copy"];
  return { series: several("s", 8), kinds: several("k", 9), idle: several("i", 7), ...Object.fromEntries(names.map((name) => [name, of(`--${name}`)])) };
}

function mixed(from, to, share) {
  const parts = (colour) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  const ends = [parts(from), parts(to)];
  return `#${ends[0].map((each, at) => Math.round(each + (ends[1][at] - each) * share).toString(16).padStart(2, "0")).join("")}`;
}

// Widths of texts in pixels, and texts that fit a width: shortened in the middle, or on several lines.
const canvas = document.createElement("canvas").getContext("2d");
const widths = new Map();
const family = () => getComputedStyle(document.body).fontFamily;
function widthOf(text, size = SMALL) {
  const key = `${size} ${text}`;
  if (!widths.has(key)) {
    canvas.font = `${size}px ${family()}`;
    widths.set(key, canvas.measureText(text).width);
  }
  return widths.get(key);
}

function shortened(text, width, size = SMALL) {
  if (widthOf(text, size) <= width) return text;
  const letters = [...text];
  let least = 0, most = letters.length;
  const kept = (number) => `${letters.slice(0, Math.ceil(number / 2)).join("")}…${letters.slice(letters.length - Math.floor(number / 2)).join("")}`;
  while (least < most) {
    const middle = Math.ceil((least + most) / 2);
    if (widthOf(kept(middle), size) <= width) least = middle; else most = middle - 1;
  }
  return kept(least);
}

function wrapped(text, width, size = SMALL) {
  const lines = [];
  for (const word of text.split(" ")) {
    const longer = lines.length ? `${lines.at(-1)} ${word}` : word;
    if (lines.length && widthOf(longer, size) <= width) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines.map((line) => shortened(line, width, size));
}

function label(text, x, y, attributes = {}) {
  return svg("text", { x, y, "font-size": SMALL, ...attributes }, text);
}

// Numbers as text: SI prefixes, binary ones for amounts of bytes, as on the command line.
const PREFIXES = { 12: "T", 9: "G", 6: "M", 3: "k", 0: "", "-3": "m", "-6": "µ", "-9": "n" };
const UNSCALED = ["", "1", "1/s", "1/J", "%", "°C", "C", "ratio", "p"];
function scaleOf(value, unit) {
  const size = Math.abs(value);
  if (unit === "B") {
    const power = size >= 1 ? Math.min(4, Math.floor(Math.log2(size) / 10)) : 0;
    return [1024 ** power, ["B", "KiB", "MiB", "GiB", "TiB"][power]];
  }
  if (size === 0 || UNSCALED.includes(unit)) return [1, unit];
  const exponent = Math.max(-9, Math.min(12, 3 * Math.floor(Math.log10(size * (1 + 1e-12)) / 3)));
  return [10 ** exponent, PREFIXES[exponent] + unit];
}
const digits = (value, number = 4) => {
  const rounded = Number(value.toPrecision(number));
  return (rounded !== 0 && (Math.abs(rounded) >= 1e6 || Math.abs(rounded) < 1e-4) ? rounded.toExponential() : String(rounded)).replace("-", "−").replace("e+", "e");
};
function shown(value, unit) {
  if (value === null) return "-";
  if (unit === "%") return `${digits(100 * value, 3)}%`;
  const [size, name] = scaleOf(value, unit === "1/s" || unit === "1/J" || unit === "1" ? "" : unit);
  return `${digits(value / size)} ${name}`.trim();
}

// The tip: shown beside the pointer or a mark, and told to screen readers when the keyboard moves.
const tip = make("div"), told = make("p");
tip.id = "tip";
tip.hidden = true;
tip.setAttribute("aria-hidden", "true");
told.className = "unseen";
told.setAttribute("role", "status");
document.body.append(tip, told);

// `event` has the place in the window as clientX and clientY.
function showTip(event, text) {
  if (tip.textContent !== text) tip.textContent = text;
  tip.hidden = false;
  const gap = 14, { width, height } = tip.getBoundingClientRect();
  const right = event.clientX + gap, below = event.clientY + gap;
  const x = right + width <= root.clientWidth - 4 ? right : event.clientX - gap - width;
  const y = below + height <= innerHeight - 4 ? below : event.clientY - gap - height;
  tip.style.left = `${Math.max(4, Math.min(x, root.clientWidth - width - 4))}px`;
  tip.style.top = `${Math.max(4, y)}px`;
}
function hideTip() { tip.hidden = true; }
function tell(text) { told.textContent = text; }
addEventListener("scroll", hideTip, { passive: true });
addEventListener("pointerdown", hideTip, { capture: true });

function save(name, text, ending, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: `${type};charset=utf-8` }));
  link.download = `${name.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-+|-+$/g, "") || "data"}.${ending}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
