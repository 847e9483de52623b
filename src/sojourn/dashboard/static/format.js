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

export const compact = (count) => new Intl.NumberFormat("en", { notation: "compact" }).format(count);
export const rate = (value) => (value === null || value === undefined ? "–" : `${number(value)}/s`);
export const percent = (value) => (value === null || value === undefined ? "–" : `${Math.round(100 * value)} %`);

export function bytes(value) {
  for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    if (value >= size) return `${number(value / size)} ${unit}`;
  }
  return `${value} B`;
}

// A time: of day where that is known, with the date unless that is today; else since the start.
export function clock(seconds, about) {
  const day = date(seconds, about);
  const today = about.began === null || day === date(Date.now() / 1000 - about.began, about);
  return `${today ? "" : `${day}, `}${hour(seconds, about)}`;
}

export function date(seconds, about) {
  if (about.began === null) return "";
  return new Date(1000 * (about.began + seconds)).toLocaleDateString("en", { month: "short", day: "numeric" });
}

export function hour(seconds, about, precise = true) {
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

// What is allocated, as it is called; and whether there is a model, and figures of executors.
export const unit = (about) => (about.unit === "processors" ? "processors" : `Spark ${about.unit}`);
export const modelled = (about) => about.source !== "attached query" && about.source !== "profile";

export const plural = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;
export const capital = (words) => words.charAt(0).toUpperCase() + words.slice(1);
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

// Okabe and Ito's colours, which the colour-blind can tell apart; darker on a light ground and
// lighter on a dark one, so that each stands out from it by 3 to 1 at least.
const LIGHT = ["#0072b2", "#b57600", "#009e73", "#c2699c", "#3390c9", "#d55e00", "#333a45", "#6b7280"];
const DARK = ["#4aa8e0", "#f0b23e", "#2cc295", "#e29cc4", "#9bd4f7", "#f0763c", "#d9cf4a", "#a3adba"];
export const colour = (place) => (dark() ? DARK : LIGHT)[place % LIGHT.length];
// From the ninth on, colours come again, as dashes.
export const dashes = (place) => (place < LIGHT.length ? undefined : [3 + 3 * Math.floor(place / LIGHT.length), 3]);
export const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
