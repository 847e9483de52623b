// Figures and elements as the page shows them. Used by all other modules.

export function duration(seconds) {
  if (seconds === null || seconds === undefined || !isFinite(seconds)) return "–";
  if (seconds === 0) return "0 ms";
  for (const [unit, size] of [["µs", 1e-6], ["ms", 1e-3]]) {
    if (Math.abs(seconds) < 999.5 * size) return `${digits(seconds / size)} ${unit}`;
  }
  return `${digits(seconds)} s`;
}

function digits(value) {
  return Math.abs(value) >= 100 ? value.toFixed(0) : String(Number(value.toPrecision(3)));
}

export function number(value) {
  if (value === null || value === undefined || !isFinite(value)) return "–";
  if (Math.abs(value) >= 100) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(3)));
}

export const rate = (value) => (value === null || value === undefined ? "–" : `${number(value)}/s`);
export const percent = (value) => (value === null || value === undefined ? "–" : `${Math.round(100 * value)} %`);

export function bytes(value) {
  for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    if (value >= size) return `${number(value / size)} ${unit}`;
  }
  return `${value} B`;
}

// A time on the axis: of day where that is known, else since the start.
export function clock(seconds, about, precise = true) {
  if (about.across === "round") return `round ${seconds}`;
  if (about.began !== null) {
    const at = new Date(1000 * (about.began + seconds));
    const shown = [at.getHours(), at.getMinutes(), ...(precise ? [at.getSeconds()] : [])];
    return shown.map((part) => String(part).padStart(2, "0")).join(":");
  }
  const whole = Math.round(seconds);
  const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  const two = (part) => String(part).padStart(2, "0");
  return hours ? `${hours}:${two(minutes)}:${two(rest)}` : `${minutes}:${two(rest)}`;
}

export const tone = (busy) => (busy > 0.9 ? "bad" : busy > 0.75 ? "warn" : "good");

// An element with attributes and children; text is never taken for markup.
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  set(element, attributes);
  element.append(...children);
  return element;
}

export function draw(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  set(element, attributes);
  element.append(...children);
  return element;
}

function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
}

export const dark = () => matchMedia("(prefers-color-scheme: dark)").matches;

// Okabe and Ito's colours, which the colour-blind can tell apart; lighter on a dark ground.
const LIGHT = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c7a00", "#6b7280"];
const DARK = ["#4aa8e0", "#f0b23e", "#2cc295", "#e29cc4", "#9bd4f7", "#f0763c", "#d9cf4a", "#a3adba"];
export const colour = (place) => (dark() ? DARK : LIGHT)[place % LIGHT.length];
export const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
