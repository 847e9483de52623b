// The charts over time: sojourn, processors per operator, load. Fed with the history as columns.
/* global uPlot */
import { clock, colour, dashes, date, duration, hour, make, number, rate, style, unit } from "./format.js";

const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
const ALMOST_ALL = 0.99; // of the figures must fit; rare peaks may go beyond the axis
const SIGNS = { change: "▲", restart: "✕", relocation: "■", target: "◆" };
const LOUD = new Set(["restart", "target"]);
const URGENT = ["restart", "target", "relocation", "change"]; // whose signs come first where there are many
const MOST_SIGNS = 80;
const NARROW = 600; // pixels, below which signs keep apart, as fingers must hit them
const APART = 24;
const LEAST_APART = 5; // pixels between lines, on average, of which there may be many
const WHOLE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000];
const ROOM = 2; // times as many as there are: a limit further up would make them a strip
const MOST_POINTS = 120; // more would make one thick line
const STEP = { ArrowLeft: -1, ArrowRight: 1, PageDown: -10, PageUp: 10, Home: -Infinity, End: Infinity };
const TITLES = { sojourn: "Sojourn over time", processors: "Processors over time", load: "Load over time" };
// Between which series the fill of the upper one lies.
const BANDS = {
  sojourn: () => [{ series: [1, 2] }],
  processors: (names) => names.slice(1).map((_, place) => ({ series: [place + 1, place + 2] })),
  load: () => [],
};

export class Charts {
  constructor(onMark) {
    this.onMark = onMark;
    this.plots = {};
    this.range = null; // seconds that are shown, from the newest back; null: all
    this.fixed = null; // where somebody has zoomed in
    this.read = null; // the time whose figures somebody reads by keys
    this.sync = uPlot.sync("time");
    new ResizeObserver(() => this.resize()).observe(document.getElementById("main"));
    for (const id of Object.keys(TITLES)) this.byKeys(id);
  }

  // Draw everything anew: another topology, or other colours.
  begin(about, names) {
    this.about = about;
    this.names = names;
    for (const plot of Object.values(this.plots)) plot.destroy();
    document.querySelectorAll(".chart").forEach((chart) => chart.replaceChildren());
    document.querySelectorAll(".plot > :not(.chart)").forEach((part) => part.remove());
    this.plots = {
      sojourn: this.plot("sojourn", this.sojournSeries(), { y: { range: () => this.sojournRange() } }, duration),
      processors: this.plot("processors", this.processorSeries(), { y: { range: (u, low, high) => this.processorRange(high) } }, number, WHOLE),
      load: this.plot("load", this.loadSeries(), { y: { range: (u, low, high) => [0, (high || 1) * 1.12] } }, number),
    };
    document.querySelector("#processors h2").textContent = about.unit === "processors" ? "Processors per operator" : unit(about);
    document.querySelector("#load .unit").textContent = `${about.source === "attached query" ? "rows" : "tuples"} per second`;
  }

  // What was, and where somebody has zoomed in, was of another topology.
  forget() {
    this.history = this.marks = this.read = null;
    if (this.fixed) this.show(null, null);
  }

  sojournSeries() {
    const soft = style("--soft");
    return [
      { label: "p99", stroke: colour(4), fill: `${colour(4)}38`, width: 1 },
      { label: "p95", stroke: colour(0), width: 1.1 },
      { label: "mean", stroke: colour(0), width: 2.4 },
      { label: "model", stroke: soft, width: 1, dash: [1, 3] },
      { label: "target", stroke: colour(5), width: 1.6, dash: [8, 5], paths: uPlot.paths.stepped({ align: -1 }) },
    ];
  }

  processorSeries() {
    const stepped = uPlot.paths.stepped({ align: -1 });
    const stacked = this.names.map((name, place) => ({
      label: name, stroke: colour(place), fill: `${colour(place)}80`, area: true, width: 1.2, paths: stepped, dash: dashes(place),
    })).reverse(); // the tallest is drawn first, so that all lie before it
    return [...stacked, { label: "limit", stroke: style("--soft"), width: 1.2, dash: [8, 5], paths: stepped, auto: false }];
  }

  loadSeries() {
    return [
      { label: "load", stroke: colour(2), width: 1.8, fill: `${colour(2)}1f` },
      { label: "forecast", stroke: colour(3), width: 1.6, dash: [4, 4], points: { show: (u, at, from, to) => to - from < MOST_POINTS, size: 4, fill: colour(3) } },
    ];
  }

  plot(id, series, scales, told, incrs = undefined) {
    const host = document.querySelector(`#${id} .chart`);
    const axis = {
      stroke: style("--soft"), font: "12px system-ui, sans-serif",
      grid: { stroke: style("--line"), width: 1 }, ticks: { show: false },
    };
    const options = {
      width: Math.max(120, host.clientWidth), height: host.clientHeight, padding: [10, 30, 0, 0],
      bands: BANDS[id](this.names),
      scales: { x: { time: false, range: () => this.window() }, ...scales },
      series: [{}, ...series.map((one) => ({ points: { show: false }, ...one }))],
      axes: [
        { ...axis, size: (u, values) => (values?.some((value) => value.includes("\n")) ? 42 : 26), space: 74, incrs: STEPS, values: (u, splits) => this.times(splits) },
        { ...axis, size: 60, space: 34, ...(incrs && { incrs }), values: (u, splits) => splits.map((value) => (value === null ? "" : told(value))) },
      ],
      cursor: {
        sync: { key: "time" }, y: false, points: { size: 7 },
        drag: { setScale: false, x: true, y: false },
      },
      hooks: {
        setCursor: [(u) => this.keys(id, u.cursor.idx)],
        setSelect: [(u) => this.zoom(u)],
        drawClear: [(u) => id !== "load" && this.drawCommits(u)],
        draw: [(u) => this.signs(id, u), (u) => this.point(u)],
      },
    };
    const plot = new uPlot(options, [[], ...series.map(() => [])], host);
    // Beside the picture, as nothing within it can be reached.
    const marks = make("div", { class: "marks", role: "group", "aria-label": "Changes and restarts, reached by the arrow keys" });
    host.parentElement.append(marks, make("div", { class: "tip", hidden: "" }));
    plot.over.addEventListener("dblclick", () => this.show(null, null));
    return plot;
  }

  // What the mouse shows is there by keys as well: a chart is read as a slider over time.
  byKeys(id) {
    const host = document.querySelector(`#${id} .chart`);
    const told = { role: "slider", tabindex: 0, "aria-label": TITLES[id], "aria-orientation": "horizontal", "aria-valuemin": 0, "aria-valuemax": 0, "aria-valuenow": 0 };
    for (const [name, value] of Object.entries(told)) host.setAttribute(name, value);
    host.addEventListener("focus", () => host.matches(":focus-visible") && this.go(Infinity));
    host.addEventListener("blur", () => this.go(null));
    host.addEventListener("keydown", (event) => {
      if (!(event.key in STEP) || event.altKey || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      this.go(STEP[event.key]);
    });
  }

  // So many points further within what is shown; null: away.
  go(step) {
    const [from, to] = this.window();
    const times = (this.history?.time ?? []).filter((at) => at >= from && at <= to);
    if (step === null || !times.length) {
      if (this.read === null) return;
      this.read = null;
      for (const plot of Object.values(this.plots)) plot.setCursor({ left: -10, top: -10 }, true, false);
      return;
    }
    const place = this.read === null ? times.length - 1 : times.findLastIndex((at) => at <= this.read);
    this.read = times[Math.max(0, Math.min(times.length - 1, place + step))];
    for (const plot of Object.values(this.plots)) this.point(plot);
  }

  // The cursor stays with the time that is read while figures come.
  point(u) {
    if (this.read !== null) u.setCursor({ left: Math.max(0, u.valToPos(this.read, "x")), top: 0 }, true, false);
  }

  // Times on the axis, with the date below the first of each day where it is not all today.
  times(splits) {
    const precise = splits.length > 1 && splits[1] - splits[0] < 60;
    const days = splits.map((at) => date(at, this.about));
    const dated = days.some((day) => day !== date(Date.now() / 1000 - this.about.began, this.about));
    return splits.map((at, place) => {
      const time = hour(at, this.about, precise);
      return dated && days[place] && days[place] !== days[place - 1] ? `${time}\n${days[place]}` : time;
    });
  }

  window() {
    const times = this.history ? this.history.time : [];
    const last = times.length ? times[times.length - 1] : 1;
    if (this.fixed) return this.fixed;
    if (this.range === null) return [Math.min(times.length ? times[0] : 0, last - 1), last];
    return [last - this.range, last];
  }

  // Almost all fits; how high the few peaks go that do not is said beside the title.
  sojournRange() {
    if (!this.history) return [0, 1];
    const { time, p99, mean, target } = this.history;
    const [from, to] = this.window();
    const seen = time.flatMap((at, place) => (at >= from && at <= to ? [p99[place] ?? mean[place] ?? 0] : [])).sort((a, b) => a - b);
    const high = seen.at(-1) || 0;
    const most = seen[Math.floor(ALMOST_ALL * (seen.length - 1))] || 0;
    const fits = Math.max(1.6 * most, 1.5 * (target.at(-1) || 0), 1e-4);
    const beyond = high > 1.3 * fits;
    this.beside({ peaks: beyond ? `peaks go up to ${duration(high)}` : "" });
    return [0, beyond ? fits : Math.max(1.1 * high, 1.15 * (target.at(-1) || 0), 1e-4)];
  }

  // The limit is there if it is near; the legend tells it anyway.
  processorRange(high) {
    const limit = this.history?.most.at(-1) ?? 0;
    return [0, Math.max(2, 1.08 * (limit <= ROOM * high ? Math.max(high, limit) : high))];
  }

  // What stands beside the title of the first chart.
  beside(words) {
    this.words = { ...this.words, ...words };
    document.querySelector("#sojourn .unit").textContent = Object.values(this.words).filter(Boolean).join("; ");
  }

  zoom(u) {
    const { left, width } = u.select;
    if (width < 8) return;
    this.show(null, [u.posToVal(left, "x"), u.posToVal(left + width, "x")]);
    u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
  }

  show(range, fixed) {
    this.range = range;
    this.fixed = fixed;
    if (this.history) this.update(this.history, this.marks);
    document.dispatchEvent(new CustomEvent("ranged", { detail: { range, fixed } }));
  }

  update(history, marks, ended = this.ended) {
    this.history = history;
    this.marks = marks;
    this.ended = ended;
    if (document.hidden) return; // drawn when somebody looks again
    const { time } = history;
    const nothing = (values) => values.every((value) => value === null);
    this.plots.sojourn.setData([time, history.p99, history.p95, history.mean, history.estimate, history.target]);
    this.flat("sojourn", nothing(history.mean));
    let below = time.map(() => 0);
    this.stacks = this.names.map((name) => (below = below.map((sum, at) => sum + (history.processors[name][at] || 0))));
    this.plots.processors.setData([time, ...[...this.stacks].reverse(), history.most]);
    this.plots.load.setData(this.loadData(history));
    for (const [id, plot] of Object.entries(this.plots)) this.keys(id, this.read === null ? null : plot.valToIdx(this.read));
  }

  // Forecasts stand where their load was due, beside what came.
  loadData({ time, load, forecast, due }) {
    const due_at = new Map();
    forecast.forEach((value, at) => value !== null && due_at.set(due[at], value));
    if (!due_at.size) return [time, load, time.map(() => null)];
    const whens = [...due_at.keys()].sort((a, b) => a - b);
    return uPlot.join([[time, load], [whens, whens.map((at) => due_at.get(at))]]);
  }

  flat(id, empty) {
    const host = document.querySelector(`#${id} .plot`);
    host.querySelector(".empty")?.remove();
    if (empty) host.append(make("p", { class: "empty" }, `Nothing was completed${this.ended ? "" : " yet"}.`));
  }

  // The figures under the cursor, or the newest ones: this is the legend as well.
  keys(id, at) {
    const { history } = this;
    if (!history) return;
    const host = document.querySelector(`#${id} .keys`);
    const plot = this.plots[id];
    const last = history.time.length - 1;
    if (last < 0) {
      host.replaceChildren(); // another topology that has told nothing yet
      return;
    }
    const when = at === null || at === undefined ? null : plot.data[0][at];
    let place = last;
    if (when !== null) for (place = 0; place < last && history.time[place] < when; place++);
    const items = [];
    const key = (series, label, value) => items.push(make("span", {}, swatch(series), `${label} `, make("b", {}, value)));
    const named = Object.fromEntries(plot.series.slice(1).map((one) => [one.label, one]));
    if (id === "sojourn") {
      for (const [label, of] of [["mean", "mean"], ["p95", "p95"], ["p99", "p99"], ["model", "estimate"], ["target", "target"]]) {
        if (history[of].some((value) => value !== null)) key(named[label], label, duration(history[of][place]));
      }
    } else if (id === "processors") {
      this.names.forEach((name) => key(named[name], name, number(history.processors[name][place])));
      if (this.names.length > 1) {
        const total = this.names.reduce((sum, name) => sum + (history.processors[name][place] || 0), 0);
        items.push(make("span", {}, "in all ", make("b", {}, number(total))));
      }
      if (history.most[place] !== null) key(named.limit, "limit", number(history.most[place]));
    } else {
      key(named.load, "came", rate(history.load[place]));
      if (history.forecast.some((value) => value !== null)) {
        const foretold = at === null || at === undefined ? history.forecast[last] : plot.data[2][at];
        key(named.forecast, when === null ? "forecast" : "was forecast", foretold === null || foretold === undefined ? "as now" : rate(foretold));
      }
    }
    items.push(make("span", { class: "at" }, when === null ? "" : clock(when, this.about)));
    host.replaceChildren(...items);
    const words = items.map((item) => item.textContent).filter(Boolean).join(", ");
    const told = { "aria-valuemin": history.time[0], "aria-valuemax": history.time[last], "aria-valuenow": when ?? history.time[last], "aria-valuetext": words };
    const chart = document.querySelector(`#${id} .chart`);
    for (const [name, value] of Object.entries(told)) chart.setAttribute(name, value);
  }

  // Commits are short strokes above the time axis, unless there are too many to tell apart.
  drawCommits(u) {
    const { min, max } = u.scales.x;
    const commits = (this.marks || []).filter((one) => one.kind === "commit" && one.time >= min && one.time <= max);
    const { ctx, bbox } = u;
    if (!commits.length || bbox.width / commits.length < LEAST_APART * devicePixelRatio) return;
    ctx.save();
    ctx.strokeStyle = style("--soft");
    ctx.lineWidth = devicePixelRatio;
    ctx.beginPath();
    for (const one of commits) {
      const x = Math.round(u.valToPos(one.time, "x", true));
      ctx.moveTo(x, bbox.top + bbox.height);
      ctx.lineTo(x, bbox.top + bbox.height - 6 * devicePixelRatio);
    }
    ctx.stroke();
    ctx.restore();
  }

  // Changes, restarts and other targets: a line in the chart, and a button above it as far as there
  // is room.
  signs(id, u) {
    const host = document.querySelector(`#${id} .marks`);
    if (!host) return;
    const { min, max } = u.scales.x;
    const marks = (this.marks || []).filter((one) => one.kind in SIGNS && one.time >= min && one.time <= max);
    const { ctx, bbox } = u;
    // Asked for once: each asking in between would have the browser lay out the page anew.
    const [soft, loud, left] = [style("--soft"), style("--bad-fill"), u.over.offsetLeft];
    const shown = this.foremost(u, marks, host.clientWidth);
    const crowded = bbox.width / marks.length < LEAST_APART * devicePixelRatio;
    ctx.save();
    ctx.lineWidth = devicePixelRatio;
    ctx.globalAlpha = 0.75;
    for (const kind of URGENT) {
      ctx.strokeStyle = LOUD.has(kind) ? loud : soft;
      ctx.setLineDash(kind === "change" ? [2, 3] : [6, 3]);
      ctx.beginPath();
      for (const one of kind === "change" && crowded ? shown : marks) {
        if (one.kind !== kind) continue;
        const x = Math.round(u.valToPos(one.time, "x", true)) + 0.5;
        ctx.moveTo(x, bbox.top);
        ctx.lineTo(x, bbox.top + bbox.height);
      }
      ctx.stroke();
    }
    ctx.restore();
    if (id !== "sojourn") return;
    const known = new Map([...host.children].map((button) => [button.dataset.key, button]));
    this.beside({ signs: shown.length < marks.length ? `signs of ${shown.length} of ${marks.length} changes` : "" });
    for (const one of shown) {
      const key = `${one.kind} ${one.number}`;
      const button = known.get(key) || this.sign(one, key, host);
      known.delete(key);
      button.style.left = `${left + u.valToPos(one.time, "x")}px`;
    }
    for (const button of known.values()) this.drop(button, host);
    // By time, as they are seen and read out.
    const order = [...host.children].sort((a, b) => a.dataset.time - b.dataset.time);
    if (order.some((button, place) => button !== host.children[place])) {
      const focused = document.activeElement;
      host.append(...order);
      if (order.includes(focused)) focused.focus({ preventScroll: true });
    }
    this.reach(host);
  }

  // Those whose signs are shown: rare kinds first, then the newest, and on a phone none too close.
  foremost(u, marks, width) {
    const order = [...marks].reverse().sort((a, b) => URGENT.indexOf(a.kind) - URGENT.indexOf(b.kind));
    const places = [];
    const free = (one) => {
      const at = u.valToPos(one.time, "x");
      if (width < NARROW && places.some((place) => Math.abs(place - at) < APART)) return false;
      return places.push(at);
    };
    return order.filter(free).slice(0, MOST_SIGNS).sort((a, b) => a.time - b.time);
  }

  // What was looked at goes to the nearest that stays.
  drop(button, host) {
    const focused = button === document.activeElement;
    if (focused || button.matches(":hover")) host.parentElement.querySelector(".tip").hidden = true;
    button.remove();
    if (!focused || !host.children.length) return;
    const away = (one) => Math.abs(one.dataset.time - button.dataset.time);
    [...host.children].reduce((best, one) => (away(one) < away(best) ? one : best)).focus({ preventScroll: true });
  }

  // One of them is reached by Tab, the others by arrows.
  reach(host, to = null) {
    const all = [...host.children];
    const stop = to ?? all.find((one) => one.tabIndex === 0) ?? all.at(-1);
    for (const one of all) one.tabIndex = one === stop ? 0 : -1;
  }

  sign(one, key, host) {
    const words = `${clock(one.time, this.about)}  ${one.told}`;
    const button = make("button", { type: "button", "data-kind": one.kind, "data-key": key, "data-time": one.time, tabindex: -1, "aria-label": words }, SIGNS[one.kind]);
    const tip = host.parentElement.querySelector(".tip");
    const show = () => {
      tip.textContent = words;
      tip.hidden = false;
      tip.style.top = "18px";
      const room = host.clientWidth - tip.offsetWidth;
      tip.style.left = `${Math.max(0, Math.min(room, button.offsetLeft - tip.offsetWidth / 2))}px`;
    };
    for (const event of ["pointerenter", "focus"]) button.addEventListener(event, show);
    for (const event of ["pointerleave", "blur"]) button.addEventListener(event, () => (tip.hidden = true));
    button.addEventListener("click", () => this.onMark(one));
    button.addEventListener("focus", () => this.reach(host, button));
    button.addEventListener("keydown", (event) => {
      const order = [...host.children].sort((a, b) => a.dataset.time - b.dataset.time);
      const step = { ArrowLeft: -1, ArrowRight: 1, Home: -order.length, End: order.length }[event.key];
      if (!step) return;
      event.preventDefault();
      order[Math.max(0, Math.min(order.length - 1, order.indexOf(button) + step))].focus();
    });
    host.append(button);
    return button;
  }

  resize() {
    for (const [id, plot] of Object.entries(this.plots)) {
      const host = document.querySelector(`#${id} .chart`);
      const width = Math.max(120, host.clientWidth);
      if (width !== plot.width || host.clientHeight !== plot.height) plot.setSize({ width, height: host.clientHeight });
    }
  }
}

function swatch(series) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
  for (const [name, value] of [["width", 16], ["height", 10], ["aria-hidden", "true"]]) svg.setAttribute(name, value);
  line.setAttribute("d", "M0 5h16");
  const stroke = typeof series.stroke === "function" ? series.stroke() : series.stroke;
  line.setAttribute("stroke", stroke);
  line.setAttribute("stroke-width", series.area ? 9 : 1.2 * series.width);
  if (series.dash) line.setAttribute("stroke-dasharray", series.dash.join(" "));
  svg.append(line);
  return svg;
}
