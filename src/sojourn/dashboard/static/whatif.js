// What the model says of another target or another load, at once. Asks the server; changes nothing.
import { capital, duration, make, modelled, number, percent, rate } from "./format.js";

const WAIT_MS = 60; // after the last move of a slider
const GUESS = 0.2; // seconds, where nothing was measured

export class WhatIf {
  constructor(told) {
    this.told = told; // what somebody has asked for is read out; what just follows the figures is not
    this.host = document.querySelector("#whatif .body");
    this.target = slider("target", "Target", -1, 1, 0.01);
    this.load = slider("load", "Load", -1, 1, 0.01);
    this.answer = make("p", { class: "answer" });
    this.bars = make("div", { class: "bars" });
    this.back = make("button", { class: "plain", type: "button" }, "as it is now");
    this.back.addEventListener("click", () => {
      this.target.input.value = this.load.input.value = 0;
      this.held = null;
      this.ask(true);
    });
    // Without a target, what was measured when somebody first asked is held, so that it stays put.
    this.target.input.addEventListener("input", () => (this.held ??= this.latest?.value ?? GUESS));
    for (const one of [this.target, this.load]) one.input.addEventListener("input", () => this.ask(true));
    this.host.append(this.target.element, this.load.element, this.answer, this.bars, make("p", { class: "note" }, this.back));
  }

  begin(about) {
    this.about = about;
    document.getElementById("whatif").hidden = !modelled(about);
    this.asked = this.latest = this.held = null;
    this.wished = false;
    this.turn = (this.turn || 0) + 1; // what is still on its way was of another topology
    clearTimeout(this.timer);
    for (const one of [this.target, this.load]) {
      one.input.value = 0;
      one.output.value = "";
    }
    this.say("");
  }

  update(latest) {
    this.latest = latest;
    this.labels();
    // The answer follows the figures, but not with every tick.
    if (latest && (!this.asked || latest.number - this.asked >= 5)) this.ask();
  }

  get wish() {
    const target = this.latest?.target ?? this.held ?? this.latest?.value ?? GUESS;
    return { target: target * 10 ** Number(this.target.input.value), load: 10 ** Number(this.load.input.value) };
  }

  labels() {
    if (!this.latest) return;
    const { target, load } = this.wish;
    const told = this.latest.target === null && this.held === null ? `none${this.latest.value === null ? "" : `; now ${duration(target)}`}` : duration(target);
    this.target.output.value = told;
    this.load.output.value = `${number(load)} × = ${rate(load * (this.latest.load ?? 0))}`;
    this.target.input.setAttribute("aria-valuetext", told);
    this.load.input.setAttribute("aria-valuetext", `${number(load)} times the present load`);
  }

  ask(wished = false) {
    this.wished ||= wished;
    this.labels();
    if (!this.latest || document.getElementById("whatif").hidden) return;
    this.asked = this.latest.number;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.send(), WAIT_MS);
  }

  async send() {
    const { target, load } = this.wish;
    const turn = (this.turn = (this.turn || 0) + 1);
    const reply = await fetch(`api/v1/whatif?target=${target.toPrecision(4)}s&load=${load.toPrecision(4)}`).catch(() => null);
    if (turn !== this.turn) return; // a newer question is on its way
    const found = reply ? await reply.json().catch(() => null) : null;
    if (!found || !reply.ok) this.say(found ? capital(found.error) : "The server does not answer.");
    else this.show(found);
    if (this.wished) this.told(this.answer.textContent);
    this.wished = false;
  }

  show(found) {
    const names = Object.keys(found.present);
    const present = names.reduce((sum, name) => sum + found.present[name], 0);
    if (!names.length) {
      this.say(`${capital(found.reason)}.`);
      return;
    }
    if (found.reason) {
      const shortest = found.shortest_s !== null && found.shortest_s !== undefined ? ` Without any waiting tuples take ${duration(found.shortest_s)}.` : "";
      this.answer.textContent = `Out of reach: ${found.reason}.${shortest}`;
    } else {
      const more = found.total - present;
      const change = more === 0 ? "as many as now" : `${Math.abs(more)} ${more > 0 ? "more" : "fewer"} than now`;
      this.answer.replaceChildren(make("b", {}, `${found.total} processors`), ` ${change}, ${duration(found.expected_s)} expected. `,
        found.present_s === null ? `The ${present} there are could not keep up.` : `With the ${present} there are: ${duration(found.present_s)}.`);
    }
    const most = Math.max(1, ...names.map((name) => Math.max(found.present[name], found.processors[name] || 0)));
    this.bars.replaceChildren(...names.flatMap((name) => {
      const count = found.processors[name];
      const fill = make("i");
      fill.style.width = `${(100 * (count || 0)) / most}%`;
      const now = make("u", { title: `${found.present[name]} now` });
      now.style.left = `calc(${(100 * found.present[name]) / most}% - 1px)`;
      const told = count === undefined ? `${found.present[name]} now` : `${found.present[name]} → ${count}, ${percent(found.busy[name])} busy`;
      return [make("span", { class: "name", title: name }, name), make("span", { class: "bar", "aria-hidden": "true" }, fill, now), make("span", {}, told)];
    }));
  }

  say(words) {
    this.answer.textContent = words;
    this.bars.replaceChildren();
  }
}

function slider(id, label, min, max, step) {
  const input = make("input", { type: "range", id: `${id}-knob`, min, max, step, value: 0 });
  const output = make("output", { for: `${id}-knob` });
  return { input, output, element: make("div", { class: "knob" }, make("label", { for: `${id}-knob` }, label), output, input) };
}

