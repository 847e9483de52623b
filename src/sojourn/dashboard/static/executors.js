// Elastic executors with their processors, state and moves, the loads of shards, and machines; as far
// as ticks tell.
import { bytes, duration, make, number, percent } from "./format.js";

export class Executors {
  constructor() {
    this.host = document.querySelector("#executors .body");
    this.select = document.querySelector("#executors select");
    this.select.addEventListener("change", () => this.update(this.latest));
  }

  begin(names) {
    const before = this.select.value;
    this.select.replaceChildren(...names.map((name) => make("option", { value: name }, name)));
    if (names.includes(before)) this.select.value = before;
    this.chosen = names.includes(before);
  }

  pick(name) {
    this.select.value = name;
    this.chosen = true;
    this.update(this.latest);
    document.getElementById("executors").scrollIntoView({ block: "nearest", behavior: "smooth" });
  }

  update(latest) {
    this.latest = latest;
    if (!latest) return;
    if (!this.chosen) {
      const best = Object.keys(latest.vertices).find((name) => latest.vertices[name].executors.length || Object.keys(latest.vertices[name].shards).length);
      if (best && best in latest.wanted) this.select.value = best;
      this.chosen = Boolean(best);
    }
    const vertex = latest.vertices[this.select.value];
    const parts = [];
    if (vertex) parts.push(...this.executors(vertex), ...this.shards(vertex));
    parts.push(this.machines(latest));
    this.host.replaceChildren(...parts.filter(Boolean));
  }

  executors(vertex) {
    if (!vertex.executors.length) {
      return [make("p", { class: "note" }, `One executor with ${number(vertex.processors)} processors, ${percent(vertex.utilization)} busy.`)];
    }
    const heads = ["executor", "processors", "busy", "came", "busiest shard", "state", "moves"];
    const rows = vertex.executors.map((one) => {
      const moves = one.moves ? `${one.moves}, ${bytes(one.moved)}, ${duration(one.moving_s)} each` : "–";
      const cells = [`${one.executor}`, one.processors, percent(one.load / Math.max(1, one.processors)), number(one.arrivals), percent(one.hottest), one.state ? bytes(one.state) : "–", moves];
      return make("tr", {}, ...cells.map((cell) => make("td", {}, String(cell))));
    });
    return [make("div", { class: "over" }, make("table", {}, make("thead", {}, make("tr", {}, ...heads.map((head) => make("th", { scope: "col" }, head)))), make("tbody", {}, ...rows)))];
  }

  shards(vertex) {
    const loads = Object.entries(vertex.shards).sort((a, b) => b[1] - a[1]);
    if (!loads.length) return [make("p", { class: "note" }, "It has no key, so any processor takes any tuple.")];
    const [most] = loads;
    const bars = loads.map(([shard, count]) => {
      const bar = make("i", { title: `shard ${shard}: ${count} tuples` });
      bar.style.height = `${Math.max(3, (100 * count) / most[1])}%`;
      return bar;
    });
    const words = `The busiest of its shards: number ${most[0]} with ${number(most[1])} tuples in the last interval.`;
    return [make("h3", {}, "Tuples per shard"), make("div", { class: "shards", role: "img", "aria-label": words }, ...bars), make("p", { class: "note" }, words)];
  }

  machines(latest) {
    const told = [];
    if (latest.machines) told.push(`Machines in use: ${Object.entries(latest.machines).map(([kind, count]) => `${count} × ${kind}`).join(", ")}.`);
    if (latest.capacity !== null) told.push(`The machines in use have room for ${latest.capacity} processors.`);
    return told.length ? make("p", { class: "note" }, told.join(" ")) : null;
  }
}
