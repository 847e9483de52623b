// The page: listens to the server's stream and hands every tick to the views.
import { Charts } from "./charts.js";
import { Decisions } from "./decisions.js";
import { Executors } from "./executors.js";
import { capital, duration, make, number, percent, plural, rate, tone, unit } from "./format.js";
import { Graph } from "./graph.js";
import { WhatIf } from "./whatif.js";

const RANGES = [["5 min", 300], ["30 min", 1800], ["6 h", 21600], ["All", null]];
const RETRY_MS = 2000;
const LOOK_MS = 2000;
const SILENT_S = 10; // without news, and three intervals
const MOST_MARKS = 1000; // of each kind

const byId = (id) => document.getElementById(id);
const decisions = new Decisions();
const executors = new Executors();
const graph = new Graph((name) => executors.pick(name));
const charts = new Charts((mark) => decisions.find(mark));
const whatIf = new WhatIf(say);
let now = null; // all that the server has told
let figuresAt = 0;
let lost = false;

// The buttons for how much time is shown.
byId("ranges").append(...RANGES.map(([label, seconds]) => {
  const button = make("button", { type: "button", "data-seconds": seconds ?? "all", "aria-pressed": seconds === null }, label);
  button.addEventListener("click", () => charts.show(seconds, null));
  return button;
}));
document.addEventListener("ranged", ({ detail: { range, fixed } }) => {
  for (const button of byId("ranges").children) {
    button.setAttribute("aria-pressed", !fixed && button.dataset.seconds === String(range ?? "all"));
  }
});

function begin(told) {
  const other = !now || JSON.stringify(now.topology) !== JSON.stringify(told.topology);
  now = told;
  const { topology } = now;
  const names = topology.vertices.filter((one) => one.kind === "operator").map((one) => one.name);
  document.title = `${topology.name} – Sojourn`;
  byId("name").textContent = topology.name;
  byId("name").title = topology.name;
  if (other) {
    charts.forget();
    charts.begin(topology, names);
    graph.begin(topology);
    executors.begin(topology, names);
    whatIf.begin(topology);
    byId("ranges").hidden = topology.across !== "time";
  }
  decisions.begin(topology, now.decisions, other);
  update();
}

function news(told) {
  const { history } = told;
  for (const [key, values] of Object.entries(history)) {
    if (key !== "processors") now.history[key].push(...values);
  }
  for (const [name, values] of Object.entries(history.processors)) now.history.processors[name].push(...values);
  now.marks = bounded([...now.marks, ...told.marks]);
  now.status = told.status;
  now.latest = told.latest;
  decisions.add(told.decisions, say);
  update();
}

// Each kind has room of its own, so that frequent commits push nothing else out.
function bounded(marks) {
  const left = {};
  return marks.reverse().filter(({ kind }) => (left[kind] = (left[kind] ?? MOST_MARKS) - 1) >= 0).reverse();
}

// Read out.
function say(words) {
  byId("said").textContent = words;
}

function update() {
  charts.update(now.history, now.marks, now.status.finished);
  decisions.end(now.status.finished);
  graph.update(now.latest, now.status.lost);
  whatIf.update(now.latest);
  executors.update(now.latest);
  tiles();
  state();
}

function state() {
  if (lost) return;
  const { status, topology } = now;
  const what = topology.source === "run" ? "Ended" : topology.source === "journal" ? "Recorded run" : `Recorded ${topology.source}`;
  const [kind, words] = status.finished ? ["ended", what] : status.paused ? ["paused", "Paused"] : now.latest ? ["live", "Live"] : ["waiting", "Starting"];
  show(status.problem ? "failed" : kind, status.problem ? "Failed" : words);
  banner(status.problem ? `The topology has failed: ${status.problem}` : "");
  byId("foot").textContent = now.latest ? `${topology.across === "round" ? "Round" : "Tick"} ${number(now.latest.number)}` : "";
}

function show(kind, words) {
  const element = byId("state");
  element.dataset.state = kind;
  if (element.textContent !== words) element.textContent = words;
}

function banner(words) {
  byId("banner").hidden = !words;
  if (byId("banner").textContent !== words) byId("banner").textContent = words;
}

function tile(what, value, small, more, meter = null, bad = false) {
  const bar = meter === null ? null : make("i", { "data-tone": meter.tone });
  if (bar) bar.style.width = `${Math.min(100, 100 * meter.share)}%`;
  const parts = [make("div", { class: "what" }, what), make("div", { class: "value" }, value, make("small", {}, small))];
  if (bar) parts.push(make("div", { class: "meter", "aria-hidden": "true" }, bar));
  return make("div", { class: "tile", "data-tone": bad ? "bad" : "good" }, ...parts, make("div", { class: "more" }, more));
}

function tiles() {
  const { latest, status, topology } = now;
  if (!latest) {
    const waits = status.finished ? tile("Nothing", "–", "", "No interval was measured.") : tile("Waiting", "…", "", "The first figures come after the first interval.");
    byId("tiles").replaceChildren(waits);
    return;
  }
  const statistic = latest.percentile === null ? "mean" : `p${latest.percentile}`;
  const share = latest.target ? (latest.value ?? 0) / latest.target : null;
  const missed = latest.within === false;
  const limits = [latest.most, latest.capacity].filter((one) => one !== null);
  const limit = limits.length ? Math.min(...limits) : null;
  const forecast = latest.forecast && latest.forecast.by !== "now" ? latest.forecast : null;
  const more = forecast ? [`${rate(forecast.rate)} expected in ${duration(forecast.horizon)}`] : [];
  const gone = Object.values(status.lost);
  const losing = Object.values(latest.vertices).some((one) => one.dropped || one.shed);
  for (const what of ["dropped", "shed"]) {
    const count = gone.reduce((sum, one) => sum + one[what], 0);
    if (count) more.push(`${number(count)} ${what}`);
  }
  const commits = topology.commits ? [status.commits ? `commit ${number(status.commits)}` : "no commit yet"] : [];
  byId("tiles").replaceChildren(
    tile(`Sojourn, ${statistic}`, duration(latest.value), latest.target ? ` of ${duration(latest.target)}` : "",
      latest.estimate === null ? "" : `the model has ${duration(latest.estimate)}`,
      share === null ? null : { share, tone: missed ? "bad" : tone(share * 0.9) }, missed),
    tile("Target kept", status.within === null ? "–" : kept(status.within / status.targeted), "",
      status.within === null ? (latest.target === null ? "there is no target" : "no interval could be judged") : `in ${number(status.within)} of ${number(status.targeted)} intervals`,
      status.within === null ? null : { share: status.within / status.targeted, tone: "good" }),
    tile(capital(unit(topology)), number(latest.processors), limit === null ? "" : ` of ${limit}`,
      `${now.history.busy.at(-1) === null ? "" : `${percent(now.history.busy.at(-1))} busy`}`,
      now.history.busy.at(-1) === null ? null : { share: now.history.busy.at(-1), tone: tone(now.history.busy.at(-1)) }),
    tile(topology.source === "profile" ? "Carried" : "Load", number(latest.load), " /s", more.join(", "), null, losing),
    tile("Changes", number(status.changes), "", [plural(status.restarts, "restart"), ...(status.relocations ? [plural(status.relocations, "relocation")] : []), ...commits].join(", ")),
  );
}

const kept = (share) => `${(Math.floor(share * 1000) / 10).toFixed(share === 1 ? 0 : 1)} %`;

// The stream tells everything at first, and then what is new; it comes back by itself.
function listen() {
  const stream = new EventSource("api/v1/events");
  stream.addEventListener("begin", (event) => heard(() => begin(JSON.parse(event.data))));
  stream.addEventListener("news", (event) => heard(() => news(JSON.parse(event.data))));
  stream.addEventListener("error", () => {
    if (now?.status.finished) {
      // How it ended stays to be read.
      if (now.topology.source !== "run" && !now.status.problem) banner("The server has ended. What it has told stays here.");
    } else {
      lost = true;
      show("lost", "Connection lost");
      banner(`There is no connection to the topology; trying again.${figuresAt ? ` ${from()}` : ""}`);
    }
    if (stream.readyState === EventSource.CLOSED) setTimeout(listen, RETRY_MS);
  });
}

const from = () => `The last figures are from ${new Date(figuresAt).toLocaleTimeString()}.`;

function heard(then) {
  const known = now?.latest?.number;
  lost = false;
  then();
  if (!now?.latest || now.latest.number === known) return;
  // Those that there were before somebody looked may be old.
  const { began } = now.topology;
  figuresAt = known === undefined && began !== null ? 1000 * (began + now.latest.time) : Date.now();
  watch();
}

// A stream that hangs makes no error, and old figures would look like new ones.
function watch() {
  if (lost || !now?.latest || now.status.finished) return;
  const silent = (Date.now() - figuresAt) / 1000;
  if (silent < Math.max(SILENT_S, 3 * now.latest.interval)) return;
  show("lost", "No news");
  banner(`Nothing was heard of the topology for long. ${from()}`);
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden || !now) return;
  update();
  watch();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  if (!now) return;
  charts.begin(now.topology, charts.names);
  update();
  watch();
});
setInterval(watch, LOOK_MS);
listen();
