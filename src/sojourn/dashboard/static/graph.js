// The topology, from left to right. Places come from the server; figures from every tick.
import { compact, draw, duration, modelled, number, percent, rate, tone, unit } from "./format.js";

const SMALLEST = 0.79;
const LONGEST = 15; // letters of a name, beside which there is room for "3 → 12"

export class Graph {
  constructor(onPick) {
    this.onPick = onPick;
    this.host = document.querySelector("#graph .scroll");
    new ResizeObserver(() => this.svg && this.fit()).observe(this.host);
  }

  begin(topology) {
    this.topology = topology;
    const { width, height, box } = topology;
    const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": `Topology ${topology.name}` });
    svg.append(draw("defs", {}, draw("marker", { id: "tip-of", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 8, markerHeight: 8, markerUnits: "userSpaceOnUse", orient: "auto" }, draw("path", { class: "tip-of", d: "M0 0L8 4L0 8z" }))));
    this.edges = topology.edges.map((edge) => {
      const path = draw("path", { class: `edge${edge.feedback ? " feedback" : ""}`, d: edge.path, "marker-end": "url(#tip-of)", "data-from": edge.from, "data-to": edge.to });
      const label = draw("text", { class: "rate", x: edge.x, y: edge.y + (edge.feedback ? -4 : 4) });
      path.append(draw("title", {}, `${edge.from} → ${edge.to}${edge.feedback ? ", feedback" : ""}`));
      return { edge, path, label };
    });
    svg.append(...this.edges.map((one) => one.path));
    this.vertices = new Map();
    for (const vertex of topology.vertices) {
      const part = this.vertex(vertex, box);
      this.vertices.set(vertex.name, part);
      svg.append(part.group);
    }
    svg.append(...this.edges.map((one) => one.label));
    this.host.replaceChildren(svg);
    this.svg = svg;
    this.fit();
    document.querySelector("#graph .legend").textContent = topology.edges.some((edge) => edge.feedback) ? "dashed: feedback" : "";
  }

  // As wide as there is room for, but never too small to read.
  fit() {
    const { width, height } = this.topology;
    const style = getComputedStyle(this.host);
    const room = this.host.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    const scale = Math.max(SMALLEST, Math.min(1, room / width));
    this.svg.setAttribute("width", width * scale);
    this.svg.setAttribute("height", height * scale);
  }

  vertex({ name, kind, x, y }, { width, height }) {
    const more = kind === "operator" && modelled(this.topology); // whose executors are shown
    const group = draw("g", { class: `vertex ${kind}${more ? " more" : ""}`, transform: `translate(${x} ${y})`, tabindex: 0, role: more ? "button" : "img", "data-name": name });
    const text = (className, at, down) => draw("text", { class: className, x: at, y: down });
    const inner = width - 28;
    const part = {
      group, kind, inner,
      title: text("title", 14, 24), count: text("end", width - 14, 24),
      left1: text("", 14, 66), right1: text("soft end", width - 14, 66),
      left2: text("soft", 14, 88), right2: text("soft end", width - 14, 88),
      track: draw("rect", { class: "track", x: 14, y: 36, width: inner, height: 7, rx: 3.5 }),
      fill: draw("rect", { class: "fill", x: 14, y: 36, width: 0, height: 7, rx: 3.5 }),
    };
    part.title.textContent = name.length > LONGEST ? `${name.slice(0, LONGEST - 1)}…` : name;
    group.append(draw("title", {}, name));
    group.append(draw("rect", { class: "box", width, height, rx: 10 }));
    if (kind === "operator") group.append(part.track, part.fill);
    group.append(part.title, part.count, part.left1, part.right1, part.left2, part.right2);
    if (more) {
      group.addEventListener("click", () => this.onPick(name));
      group.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        this.onPick(name);
      });
    }
    return part;
  }

  update(latest, lost) {
    if (!latest) return;
    for (const [name, part] of this.vertices) {
      const vertex = latest.vertices[name];
      if (vertex) this.show(name, part, vertex, latest.wanted[name], lost[name]);
      else this.clear(name, part);
    }
    const most = Math.max(1e-9, ...Object.values(latest.vertices).flatMap((one) => Object.values(one.sent)));
    for (const { edge, path, label } of this.edges) {
      const sent = latest.vertices[edge.from]?.sent[edge.name];
      label.textContent = sent === undefined ? "" : rate(sent);
      path.setAttribute("stroke-width", (1.2 + 3.2 * Math.sqrt((sent || 0) / most)).toFixed(1));
    }
  }

  // Nothing is known of one that is away, such as during a restart.
  clear(name, part) {
    for (const key of ["count", "right1", "left2", "right2"]) part[key].textContent = "";
    part.left1.textContent = "not there";
    part.fill.setAttribute("width", 0);
    part.group.setAttribute("aria-label", `${part.kind} ${name}: not there`);
  }

  // `lost` are the tuples that it has dropped and shed since the start.
  show(name, part, vertex, wanted, lost) {
    const { group } = part;
    const words = [];
    const gone = lost ? ["dropped", "shed"].filter((what) => lost[what]).map((what) => `${number(lost[what])} ${what}`) : [];
    if (part.kind === "operator") {
      const moving = wanted !== undefined && wanted !== vertex.processors;
      part.count.textContent = moving ? `${vertex.processors} → ${wanted}` : `× ${vertex.processors}`;
      part.fill.setAttribute("width", (part.inner * Math.min(1, vertex.utilization)).toFixed(1));
      part.fill.dataset.tone = tone(vertex.utilization);
      part.left1.textContent = `${percent(vertex.utilization)} busy`;
      part.right1.textContent = vertex.share === null ? "" : `${percent(vertex.share)} of sojourn`;
      part.left2.textContent = `${rate(vertex.rate)} in`;
      part.right2.textContent = `${number(vertex.queue)} waiting`;
      words.push(`${vertex.processors} ${unit(this.topology)}`, `${percent(vertex.utilization)} busy`);
      if (vertex.service !== null) words.push(`each serves ${rate(vertex.service_rate)}`, `a tuple takes ${duration(vertex.service)}`);
      if (vertex.share !== null) words.push(`${percent(vertex.share)} of the sojourn`);
    } else if (part.kind === "source") {
      part.left1.textContent = `${rate(vertex.rate)}`;
      part.left2.textContent = vertex.lag === null ? "" : vertex.lag > 0.05 ? `${duration(vertex.lag)} behind` : "on time";
      part.right2.textContent = vertex.queue ? `${number(vertex.queue)} waiting` : "source";
    } else {
      part.left1.textContent = `${rate(vertex.rate)}`;
      part.left2.textContent = vertex.queue ? `${number(vertex.queue)} waiting` : "";
      part.right2.textContent = "sink";
    }
    words.push(`${rate(vertex.rate)} come`, `${number(vertex.queue)} wait`);
    part.right1.classList.toggle("lost", gone.length > 0);
    if (gone.length) part.right1.textContent = `${compact(lost.dropped + lost.shed)} lost`;
    words.push(...gone);
    group.setAttribute("aria-label", `${part.kind} ${name}: ${words.join(", ")}`);
  }
}
