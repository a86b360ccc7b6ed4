// Other machines: what each says of its models, its last swaps and its traffic.

import { get } from "./api.js";
import { el } from "./dom.js";
import { count, moment, plural, seconds } from "./format.js";
import { tone } from "./states.js";

/** Between two questions: each one goes to every machine. */
const ASK_MS = 5_000;

export class PeersCard {
  node;
  #live;
  #list = el("div");
  #timer = null;
  #asking = false;

  constructor(live) {
    this.#live = live;
    this.node = el(
      "section",
      { class: "card peers", hidden: true, aria: { label: "Models on other machines" } },
      el("div", { class: "head" }, el("h2", {}, "On other machines")),
      this.#list,
    );
    live.addEventListener("models", () => this.#notice());
  }

  show() {
    this.#timer ??= setInterval(() => document.hidden || this.#ask(), ASK_MS);
    this.#ask();
  }

  hide() {
    clearInterval(this.#timer);
    this.#timer = null;
  }

  #notice() {
    const isNews = this.node.hidden && this.#live.peers.length > 0;
    this.node.hidden = this.#live.peers.length === 0;
    if (isNews && this.#timer !== null) this.#ask();
  }

  async #ask() {
    if (this.#asking || this.#live.peers.length === 0) return;
    this.#asking = true;
    try {
      this.#list.replaceChildren(...(await get("api/models?peers=1")).peers.map(machine));
    } catch (error) {
      console.info("peers:", error.message);
    } finally {
      this.#asking = false;
    }
  }
}

function machine({ id, models, error, metrics, swaps }) {
  const about = error ?? (metrics ? traffic(metrics) : "");
  return el(
    "section",
    { data: { peer: id } },
    el("div", { class: "head" }, el("h3", {}, id), el("p", { class: error ? "complaint small" : "muted small" }, about)),
    el("ul", {}, models.map((model) => row(id, model, swaps ?? []))),
  );
}

function traffic({ total_requests: requests, total_output_tokens: tokens }) {
  return `${plural(requests, "request")}, ${count(tokens)} tokens generated`;
}

function row(peer, { id, state }, swaps) {
  const last = swaps.find(({ model }) => model === id);
  const took = last && `${last.kind === "wake" ? "woke" : "started"} in ${seconds(last.swap_s ?? last.duration_s)} at ${moment(last.at)}`;
  return el(
    "li",
    {},
    el("span", {}, `${peer}/${id}`),
    el("span", { class: "muted small" }, took ?? ""),
    el("span", { class: "pill", data: { tone: tone(state) } }, state ?? "not known"),
  );
}
