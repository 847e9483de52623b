// Elastic executors with their processors, state and moves, the loads of shards, and machines; as far
// as ticks tell. What is there is updated in place, so that scrolling and focus stay.
import { bytes, duration, make, modelled, number, percent, plural } from "./format.js";

const HEADS = ["executor", "processors", "busy", "came", "busiest shard", "state", "moves", "on"];

export class Executors {
  constructor() {
    this.select = document.querySelector("#executors select");
    this.select.addEventListener("change", () => this.update(this.latest));
    this.alone = make("p", { class: "note" });
    this.rows = make("tbody");
    const head = make("thead", {}, make("tr", {}, ...HEADS.map((one) => make("th", { scope: "col" }, one))));
    this.table = make("div", { class: "over", tabindex: 0, role: "group", "aria-label": "Executors" }, make("table", {}, head, this.rows));
    this.title = make("h3", {}, "Tuples per shard");
    this.bars = make("div", { class: "shards", role: "img" });
    this.busiest = make("p", { class: "note" });
    this.machines = make("p", { class: "note" });
    document.querySelector("#executors .body").append(this.alone, this.table, this.title, this.bars, this.busiest, this.machines);
  }

  begin(topology, names) {
    document.getElementById("executors").hidden = !modelled(topology);
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
    if (!latest) {
      this.table.hidden = this.title.hidden = this.bars.hidden = this.busiest.hidden = this.machines.hidden = true;
      this.alone.hidden = false;
      this.alone.textContent = "The first figures come after the first interval.";
      return;
    }
    if (!this.chosen) {
      const best = Object.keys(latest.vertices).find((name) => latest.vertices[name].executors.length || Object.keys(latest.vertices[name].shards ?? {}).length);
      if (best && best in latest.wanted) this.select.value = best;
      this.chosen = Boolean(best);
    }
    const vertex = latest.vertices[this.select.value];
    this.showExecutors(vertex);
    this.showShards(vertex);
    this.showMachines(latest);
  }

  showExecutors(vertex) {
    const several = Boolean(vertex?.executors.length);
    this.table.hidden = !several;
    this.alone.hidden = several;
    if (!several) {
      this.alone.textContent = vertex ? `One executor with ${plural(vertex.processors, "processor")}, ${percent(vertex.utilization)} busy.` : "It is not there now.";
      return;
    }
    this.rows.replaceChildren(...vertex.executors.map((one) => {
      const moves = one.moves ? `${one.moves}, ${bytes(one.moved)}, ${duration(one.moving_s)} each` : "–";
      const machines = Object.entries(one.machines).map(([name, count]) => `${name} × ${count}`).join("; ") || "–";
      const cells = [`${one.executor}`, one.processors, percent(one.load / Math.max(1, one.processors)), number(one.arrivals), percent(one.hottest), one.state ? bytes(one.state) : "–", moves, machines];
      return make("tr", {}, ...cells.map((cell) => make("td", {}, String(cell))));
    }));
  }

  showShards(vertex) {
    const loads = Object.entries(vertex?.shards ?? {}).sort((a, b) => b[1] - a[1]);
    this.title.hidden = this.bars.hidden = !loads.length;
    this.busiest.hidden = !vertex;
    if (!loads.length) {
      this.busiest.textContent = vertex?.shards ? "No tuples came for its shards in the last interval." : "It has no key, so any processor takes any tuple.";
      return;
    }
    const [most] = loads;
    this.bars.replaceChildren(...loads.map(([shard, count]) => {
      const bar = make("i", { title: `shard ${shard}: ${count} tuples` });
      bar.style.height = `${Math.max(3, (100 * count) / most[1])}%`;
      return bar;
    }));
    const words = `The busiest of its shards: number ${most[0]} with ${number(most[1])} tuples in the last interval.`;
    this.bars.setAttribute("aria-label", words);
    this.busiest.textContent = words;
  }

  showMachines(latest) {
    const told = [];
    if (latest.machines) told.push(`Machines in use: ${Object.entries(latest.machines).map(([kind, count]) => `${count} × ${kind}`).join(", ")}.`);
    if (latest.capacity !== null) told.push(`The machines in use have room for ${latest.capacity} processors.`);
    this.machines.hidden = !told.length;
    this.machines.textContent = told.join(" ");
  }
}
