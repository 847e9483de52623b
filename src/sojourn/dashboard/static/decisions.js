// Decisions, newest first, in words; their inputs when asked for.
import { clock, duration, make, number, percent, rate, unit } from "./format.js";

const SHOWN = 120; // at first, and more at a time
const KEPT = 500;

export class Decisions {
  constructor() {
    this.list = document.querySelector(".decisions");
    this.empty = document.querySelector("#decisions .empty");
    this.acting = document.getElementById("acting");
    this.acting.addEventListener("change", () => this.render());
    this.more = document.querySelector("#decisions .more");
    this.more.addEventListener("click", () => {
      this.most += SHOWN;
      this.render();
    });
    this.items = new Map(); // by the tick that an entry began with
    this.entries = [];
    this.most = SHOWN;
  }

  // What is known of the same topology stays, with what is open in it; of another, nothing does.
  begin(about, entries, other) {
    this.about = about;
    this.entries = entries;
    if (other) {
      this.items.clear();
      this.list.replaceChildren();
      this.most = SHOWN;
    }
    this.render();
  }

  // Newest first; the first may be the last one known, made once more.
  add(entries, said) {
    for (const entry of [...entries].reverse()) {
      const known = this.entries[0];
      if (known && key(known) === key(entry)) {
        this.entries[0] = entry;
        continue;
      }
      this.entries.unshift(entry);
      if (entry.acts) said(`${entry.action}: ${entry.reason}`);
    }
    this.entries.length = Math.min(this.entries.length, KEPT);
    this.render(entries.length ? key(entries[0]) : null);
  }

  // Whether no more come.
  end(ended) {
    if (ended === this.ended) return;
    this.ended = ended;
    this.render();
  }

  // All that may be listed, the newest first.
  get listed() {
    return this.entries.filter((entry) => entry.acts || !this.acting.checked);
  }

  render(lit = null) {
    const { listed } = this;
    const wanted = listed.slice(0, this.most);
    this.more.hidden = listed.length <= this.most;
    this.empty.hidden = wanted.length > 0;
    const yet = this.ended ? "" : " yet";
    this.empty.textContent = this.entries.length ? `No changes${yet}.` : this.ended ? "There were none." : "None yet. The first comes after the first interval.";
    const keep = new Set(wanted.map(key));
    for (const [name, item] of this.items) {
      if (keep.has(name)) continue;
      item.element.remove();
      this.items.delete(name);
    }
    wanted.forEach((entry, place) => {
      const name = key(entry);
      let item = this.items.get(name);
      if (!item) {
        item = this.item(entry);
        if (name === lit && entry.acts) item.element.classList.add("lit");
        this.items.set(name, item);
      }
      item.update(entry);
      if (this.list.children[place] !== item.element) this.list.insertBefore(item.element, this.list.children[place] || null);
    });
  }

  item(first) {
    const badge = make("span", { class: "badge", "data-acts": first.acts });
    const when = make("span", { class: "when" });
    const words = make("p");
    const inputs = make("div", { class: "over" });
    const details = make("details", {}, make("summary", {}, "what it was based on"), inputs);
    const element = make("li", { "data-acts": first.acts, tabindex: -1 }, make("div", { class: "line" }, badge, when), words, details);
    let entry = first;
    details.addEventListener("toggle", () => details.open && this.inputs(entry, inputs));
    return {
      element,
      update: (now) => {
        if (entry === now && words.textContent) return;
        entry = now;
        const advice = now.acts && !now.applied ? " (advice)" : "";
        badge.dataset.action = now.action;
        badge.textContent = `${now.action}${advice}`;
        when.textContent = now.times > 1 ? `${now.times} × since ${clock(now.since, this.about)}` : clock(now.time, this.about);
        words.textContent = now.note ? `${now.reason}; ${now.note}` : now.reason;
      },
    };
  }

  async inputs(entry, host) {
    host.replaceChildren(make("p", { class: "note" }, "…"));
    const answer = await fetch(`api/v1/samples?number=${entry.number}`).catch(() => null);
    if (!answer || !answer.ok) {
      const why = answer?.status === 404 ? "These figures are not kept any more." : "The server does not answer.";
      host.replaceChildren(make("p", { class: "note" }, why));
      return;
    }
    host.replaceChildren(...table(await answer.json(), entry, unit(this.about)));
  }

  // From a mark in a chart to its decision, or to the nearest in time that is kept and listed.
  find(mark) {
    const { listed } = this;
    if (!listed.length) return;
    const away = (entry) => (entry.number === mark.number ? -1 : Math.max(0, entry.since - mark.time, mark.time - entry.time));
    const place = listed.reduce((best, entry, at) => (away(entry) < away(listed[best]) ? at : best), 0);
    if (place >= this.most) {
      this.most = place + 1;
      this.render();
    }
    const { element } = this.items.get(key(listed[place]));
    element.classList.remove("lit");
    element.scrollIntoView({ block: "nearest", behavior: "smooth" });
    element.focus({ preventScroll: true });
    requestAnimationFrame(() => element.classList.add("lit"));
  }
}

// Those that change nothing are one entry as long as nothing else happens, whatever they are called,
// and so is advice as long as it stays the same.
const key = (entry) => (entry.applied ? `at ${entry.number}` : `since ${entry.since}`);

function table(tick, entry, allocated) {
  const heads = ["", "k", "λ /s", "μ /s", "busy", "queue"];
  const rows = Object.entries(tick.vertices).filter(([name]) => name in tick.wanted).map(([name, one]) => {
    const after = entry.allocation?.[name];
    const count = after === undefined || after === one.processors ? one.processors : `${one.processors} → ${after}`;
    return make("tr", {}, ...[name, count, number(one.rate), number(one.service_rate), percent(one.utilization), number(one.queue)].map((cell) => make("td", { title: cell }, String(cell))));
  });
  const facts = [
    `measured ${duration(tick.value)}`, `model ${duration(tick.estimate)}`, `target ${duration(tick.target)}`,
    `load ${rate(tick.load)}`,
    tick.forecast && tick.forecast.by !== "now" ? `expected ${rate(tick.forecast.rate)} in ${duration(tick.forecast.horizon)} by its ${tick.forecast.by}` : null,
    entry.expected ? `the change should bring ${duration(entry.expected)}` : null,
    entry.needed ? `${entry.needed} ${allocated} are needed` : null,
  ].filter((fact) => fact && !fact.endsWith("–"));
  return [
    make("table", {}, make("thead", {}, make("tr", {}, ...heads.map((head) => make("th", { scope: "col" }, head)))), make("tbody", {}, ...rows)),
    make("p", { class: "note" }, facts.join(" · ")),
  ];
}
