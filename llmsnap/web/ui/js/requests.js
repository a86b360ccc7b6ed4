// Requests under way: who waits, who is answered, and the end of one that is wanted no more.

import { order } from "./api.js";
import { el, Keyed, setText } from "./dom.js";
import { seconds } from "./format.js";
import { complain } from "./notices.js";

const TICK_MS = 500;

export class RequestsCard {
  node;
  #live;
  #rows;
  #clock = null;

  constructor(live) {
    this.#live = live;
    const body = el("tbody");
    this.#rows = new Keyed(body, (request) => request.id, (request) => new Row(request));
    const heads = ["Model", "State", "For", "Request", "Client", ""];
    const table = el(
      "table",
      { class: "underway", aria: { label: "Requests under way" } },
      el("thead", {}, el("tr", {}, heads.map((head) => el("th", { scope: "col" }, head || el("span", { class: "unseen" }, "End it"))))),
      body,
    );
    this.node = el(
      "section",
      { class: "card", hidden: true },
      el("div", { class: "head" }, el("h2", {}, "Under way")),
      el("div", { class: "scroll" }, table),
    );
    live.addEventListener("requests", () => this.#show());
  }

  show() {
    this.#clock ??= setInterval(() => this.#show(), TICK_MS);
  }

  hide() {
    clearInterval(this.#clock);
    this.#clock = null;
  }

  #show() {
    this.node.hidden = this.#live.requests.size === 0;
    this.#rows.show([...this.#live.requests.values()].slice(0, 50));
  }
}

class Row {
  node;
  #state = el("span", { class: "pill" });
  #time = el("td", { class: "number" });

  constructor({ id, model, method, req_path: path, remote_ip: client }) {
    const end = el("button", { type: "button", aria: { label: `Cancel the request ${path} for ${model}` } }, "Cancel");
    end.addEventListener("click", async () => {
      end.disabled = true;
      try {
        await order(`api/inflight/${id}/cancel`);
      } catch (error) {
        complain(error.message);
      }
    });
    this.node = el(
      "tr",
      {},
      el("td", {}, model),
      el("td", {}, this.#state),
      this.#time,
      el("td", { class: "mono" }, `${method} ${path}`),
      el("td", { class: "mono" }, client),
      el("td", { class: "end" }, end),
    );
  }

  update({ state, arrived }) {
    setText(this.#state, state);
    this.#state.dataset.tone = state === "waiting" ? "moving" : "ready";
    setText(this.#time, seconds((Date.now() - arrived) / 1000));
  }
}
