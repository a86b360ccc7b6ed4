// Devices as stacked bars: who holds what of each, what others use, what is free.

import { el, fillBar, Keyed, setText } from "./dom.js";
import { bytes } from "./format.js";
import { deviceNamed, fills } from "./states.js";

export class DevicesCard {
  node;
  #list = el("ul", { class: "devices" });
  #faults = el("p", { class: "pad small complaint", hidden: true });
  #shown;

  constructor(live) {
    this.#shown = new Keyed(this.#list, (device) => device.device, () => new Device());
    this.node = el("section", { class: "card", aria: { label: "Memory" } }, this.#list, this.#faults);
    live.addEventListener("devices", () => {
      const devices = live.devices.filter((device) => device.total_bytes > 0);
      this.#shown.show(devices);
      this.node.hidden = devices.length === 0 && live.faults.length === 0;
      setText(this.#faults, live.faults.join("; "));
      this.#faults.hidden = live.faults.length === 0;
    });
  }
}

class Device {
  node;
  #title = el("h2");
  #figures = el("p", { class: "muted small number" });
  #bar = el("div", { class: "bar tall", role: "img" });
  #legend = el("ul", { class: "legend" });

  constructor() {
    this.node = el("li", { class: "device" }, el("div", { class: "head" }, this.#title, this.#figures), this.#bar, this.#legend);
  }

  update(device) {
    const { parts, free, whole } = split(device);
    const name = deviceNamed(device.device);
    setText(this.#title, device.name ? `${name} · ${device.name}` : name);
    setText(this.#figures, figures(device));
    fillBar(this.#bar, parts.map(({ fill, label, count }) => ({ fill, share: count / whole, title: `${label}: ${bytes(count)}` })));
    const words = [...parts, { label: "free", count: free }];
    this.#bar.setAttribute("aria-label", `${name}: ${words.map(({ label, count }) => `${label} ${bytes(count)}`).join(", ")}`);
    const key = JSON.stringify([words.map(({ label, count }) => [label, bytes(count)])]);
    if (this.#legend.dataset.shown === key) return;
    this.#legend.dataset.shown = key;
    this.#legend.replaceChildren(...words.map(({ fill, label, count }) => item(fill, label, count)));
  }
}

function item(fill, label, count) {
  return el("li", {}, el("span", { class: "key", data: fill ? { fill } : {}, aria: { hidden: "true" } }), `${label} `, el("b", { class: "number" }, bytes(count)));
}

/** The parts of a device's bar: models, other programs, what is kept free on purpose. */
function split(device) {
  const whole = device.total_bytes;
  const parts = Object.entries(device.models)
    .filter(([, count]) => count > 0)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([model, count]) => ({ fill: fills.of(model), label: model, count }));
  const held = parts.reduce((sum, { count }) => sum + count, 0);
  const others = Math.max(device.foreign_bytes ?? 0, device.used_bytes - held, 0);
  if (others > 0) parts.push({ fill: "foreign", label: "other programs", count: others });
  const reserve = Math.min(device.reserve_bytes ?? 0, Math.max(0, whole - held - others));
  if (reserve > 0) parts.push({ fill: "reserve", label: "kept free", count: reserve });
  const free = Math.max(0, whole - parts.reduce((sum, { count }) => sum + count, 0));
  return { parts, free, whole };
}

function figures(device) {
  const words = [`${bytes(device.used_bytes)} of ${bytes(device.total_bytes)} used`];
  if (device.capacity_bytes !== null) words.push(`${bytes(device.capacity_bytes)} for models`);
  if (device.utilisation !== null) words.push(`${Math.round(device.utilisation * 100)} % busy`);
  if (device.power_w !== null) words.push(`${Math.round(device.power_w)} W`);
  if (device.temperature_c !== null) words.push(`${Math.round(device.temperature_c)} °C`);
  if (device.state !== "fresh") words.push(device.state === "lost" ? "not to be reached" : "reading is old");
  return words.join(" · ");
}
