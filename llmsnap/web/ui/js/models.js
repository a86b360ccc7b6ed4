// The view of models: memory at the top, who is where, what is under way, how they came and went.

import { order } from "./api.js";
import { DevicesCard } from "./devices.js";
import { el, Keyed, setText } from "./dom.js";
import { plural } from "./format.js";
import { ModelRow } from "./modelrow.js";
import { complain } from "./notices.js";
import { PeersCard } from "./peers.js";
import { Profiles } from "./profiles.js";
import { SwapsCard } from "./swaps.js";
import { TimelineCard } from "./timeline.js";

/** From this many on there is a filter. */
const MANY = 8;

export class ModelsView {
  #live;
  #rows;
  #summary = el("p", { class: "muted small", id: "models-summary" });
  #filter = el("input", { type: "search", placeholder: "Filter models", aria: { label: "Filter models" }, hidden: true });
  #empty = el("p", { class: "empty", hidden: true }, "No models are configured.");
  #parts;

  constructor(root, live) {
    this.#live = live;
    const list = el("ul", { class: "models", aria: { label: "Models" } });
    this.#rows = new Keyed(list, (model) => model.id, (model) => new ModelRow(model, live));
    this.#parts = [new DevicesCard(live), new PeersCard(live), new TimelineCard(live), new SwapsCard(live)];
    const [devices, peers, timeline, swaps] = this.#parts;
    root.append(
      el(
        "div",
        { class: "head" },
        el("div", {}, el("h1", { id: "models-title" }, "Models"), this.#summary),
        new Profiles(live).node,
        this.#filter,
        this.#unloadAll(),
      ),
      devices.node,
      el("section", { class: "card", aria: { label: "Models and their states" } }, list, this.#empty),
      peers.node,
      timeline.node,
      swaps.node,
    );
    this.#filter.addEventListener("input", () => this.#show());
    live.addEventListener("models", () => this.#show());
  }

  show() {
    for (const part of this.#parts) part.show?.();
    this.#live.look();
  }

  hide() {
    for (const part of this.#parts) part.hide?.();
  }

  #unloadAll() {
    const button = el("button", { type: "button", onclick: () => unload() }, "Unload all");
    const unload = async () => {
      button.setAttribute("aria-busy", "true");
      button.disabled = true;
      try {
        await order("api/models/unload");
      } catch (error) {
        complain(error.message);
      } finally {
        button.removeAttribute("aria-busy");
        button.disabled = false;
        this.#live.look();
      }
    };
    return button;
  }

  #show() {
    const { models } = this.#live;
    const wanted = this.#filter.value.trim().toLowerCase();
    const names = (model) => [model.id, model.name, model.description, ...model.aliases].join("\n").toLowerCase();
    this.#rows.show(models.filter((model) => names(model).includes(wanted)));
    this.#filter.hidden = models.length < MANY;
    this.#empty.hidden = models.length > 0;
    const up = models.filter(({ state }) => state === "ready").length;
    const asleep = models.filter(({ state }) => state === "asleep" || state === "paging").length;
    setText(this.#summary, `${plural(models.length, "model")}: ${up} up, ${asleep} asleep`);
  }
}
