// One model: its state, its memory, its clients, and the orders it can be given.

import { address, modelPath, order } from "./api.js";
import { el, fillBar, setText } from "./dom.js";
import { bytes, listed, plural, seconds } from "./format.js";
import { complain } from "./notices.js";
import { deviceNamed, fills, orders, tone } from "./states.js";

const ORDERS = { load: "Load", wake: "Wake", sleep: "Sleep", unload: "Unload" };

export class ModelRow {
  node;
  #live;
  #id;
  #title = el("h3");
  #about = el("p", { class: "muted small about" });
  #state = el("span", { class: "pill" });
  #since = el("span", { class: "muted small" });
  #bar = el("div", { class: "bar", role: "img" });
  #memory = el("p", { class: "muted small" });
  #clients = el("p", { class: "small clients" });
  #error = el("p", { class: "small complaint" });
  #more = el("button", { type: "button", class: "quiet fold", aria: { expanded: "false" } });
  #facts = el("dl", { class: "facts", hidden: true });
  #buttons = {};
  #busy = new Set();
  #model;

  constructor(model, live) {
    this.#live = live;
    this.#id = model.id;
    for (const name of Object.keys(ORDERS)) {
      this.#buttons[name] = el(
        "button",
        { type: "button", data: { order: name }, aria: { label: `${ORDERS[name]} ${model.id}` }, onclick: () => this.#order(name) },
        ORDERS[name],
      );
    }
    this.#more.addEventListener("click", () => this.#unfold());
    this.node = el(
      "li",
      { class: "model", data: { model: model.id } },
      el("div", { class: "who" }, this.#more, el("div", {}, this.#title, this.#about)),
      el("div", { class: "state" }, this.#state, this.#since),
      el("div", { class: "memory" }, this.#bar, this.#memory),
      el("div", { class: "load" }, this.#clients),
      el("div", { class: "orders" }, Object.values(this.#buttons)),
      this.#error,
      this.#facts,
    );
  }

  update(model) {
    this.#model = model;
    setText(this.#title, model.name || model.id);
    this.#more.setAttribute("aria-label", `Details of ${model.id}`);
    setText(this.#about, about(model));
    const state = model.unloading ? "stopping" : model.state;
    setText(this.#state, model.unloading ? "unloading" : model.state);
    this.#state.dataset.tone = tone(state);
    this.node.dataset.state = model.state;
    setText(this.#since, since(model));
    this.#showMemory(model);
    this.#showClients(model);
    setText(this.#error, model.error ?? "");
    this.#error.hidden = !model.error;
    this.#showFacts(model);
    this.#showButtons();
  }

  #unfold() {
    this.#facts.hidden = !this.#facts.hidden;
    this.#more.setAttribute("aria-expanded", String(!this.#facts.hidden));
  }

  #showMemory(model) {
    const held = Object.entries(model.bytes ?? {}).filter(([, count]) => count > 0);
    const sum = held.reduce((total, [, count]) => total + count, 0);
    const needs = Object.values(model.footprint?.bytes ?? {}).reduce((total, count) => total + count, 0);
    const whole = Math.max(sum, needs, 1);
    fillBar(this.#bar, held.map(([device, count]) => ({ fill: fills.of(model.id), isFaint: device === "swap", share: count / whole, title: `${deviceNamed(device)}: ${bytes(count)}` })));
    this.#bar.hidden = sum === 0 && needs === 0;
    const where = held.map(([device, count]) => `${bytes(count)} ${deviceNamed(device)}`);
    const need = needs ? `${bytes(needs)} ${model.footprint.source}` : "";
    const words = where.length ? where.join(" + ") + (need ? ` · ${need}` : "") : need && `needs ${need}`;
    setText(this.#memory, words || "memory not known yet");
    this.#bar.setAttribute("aria-label", `Memory of ${model.id}: ${words}`);
  }

  #showClients({ in_flight, waiting, paused }) {
    const parts = [];
    if (in_flight) parts.push(`${in_flight} answering`);
    if (waiting) parts.push(`${waiting} waiting`);
    if (paused) parts.push(`${paused} paused`);
    setText(this.#clients, parts.join(", ") || "no requests");
    this.#clients.classList.toggle("muted", parts.length === 0);
  }

  #showFacts(model) {
    const key = JSON.stringify(facts(model));
    if (this.#facts.dataset.shown === key) return;
    this.#facts.dataset.shown = key;
    const link = el("a", { href: address(modelPath("upstream/", model.id)) + "/", rel: "noopener noreferrer", target: "_blank" }, "its own page");
    const logs = el("a", { href: `#logs/${encodeURIComponent(model.id)}` }, "its log");
    this.#facts.replaceChildren(
      ...facts(model).map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))),
      el("div", {}, el("dt", {}, "more"), el("dd", {}, logs, " · ", link)),
    );
  }

  #showButtons() {
    const can = orders(this.#model);
    const isGoing = this.#model.unloading || this.#model.state === "stopping";
    for (const [name, button] of Object.entries(this.#buttons)) {
      const isBusy = this.#busy.has(name);
      button.hidden = !can[name] && !isBusy && !(name === "load" && isGoing);
      button.disabled = isBusy || isGoing || !can[name];
      if (isBusy) button.setAttribute("aria-busy", "true");
      else button.removeAttribute("aria-busy");
    }
  }

  async #order(name) {
    this.#busy.add(name);
    this.#showButtons();
    try {
      await order(modelPath(`api/models/${name}/`, this.#id));
    } catch (error) {
      complain(`${ORDERS[name]} ${this.#id}: ${error.message}`);
    } finally {
      this.#busy.delete(name);
      await this.#live.look();
      this.#showButtons();
    }
  }
}

function about(model) {
  const names = model.name && model.name !== model.id ? [model.id, ...model.aliases] : model.aliases;
  return [model.description, names.length ? `also ${listed(names)}` : ""].filter(Boolean).join(" · ");
}

function since(model) {
  if (model.state === "failed" && model.retry_in_s) return `may be tried again in ${seconds(model.retry_in_s)}`;
  if (model.state === "ready" && !model.in_flight && model.idle_s !== null) return `idle ${seconds(model.idle_s)}`;
  if (["stopped", "asleep", "paging"].includes(model.state) && model.back_s) return `back in about ${seconds(model.back_s)}`;
  return "";
}

function facts(model) {
  const moved = (move) => move && `${seconds(move.seconds)}`;
  const refusals = Object.entries(model.sleep_refusals ?? {}).map(([driver, why]) => `${driver}: ${why}`);
  return [
    ["process", model.pid ? `${model.pid} (number ${model.generation})` : ""],
    ["sleeps by", model.driver ? model.driver + (model.keeps_state ? ", keeps its cache" : "") : ""],
    ["can't sleep by", refusals.join("; ")],
    ["last sleep", moved(model.last_sleep)],
    ["last wake", moved(model.last_wake)],
    ["memory figure", model.footprint ? `${model.footprint.source}: ${model.footprint.why}` : ""],
    ["unloads after", model.ttl ? `${seconds(model.ttl)} idle` : ""],
    ["pinned", model.pinned ? "yes, never put out" : ""],
    ["failed starts", model.fails ? plural(model.fails, "time") : ""],
  ].filter(([, value]) => value);
}
