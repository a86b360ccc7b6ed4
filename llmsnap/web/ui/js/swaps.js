// How models came and went: each swap with its phases, its reason, and who made room for it.

import { get } from "./api.js";
import { el, Keyed, setText } from "./dom.js";
import { listed, moment, seconds } from "./format.js";
import { PHASES, PhaseBar } from "./phases.js";

const SHOWN = 12;
const FETCHED = 60;
/** Rows are written a little after what they tell of; on a busy machine, or a slow disk, later. */
const LATER_MS = 900;
const MUCH_LATER_MS = 30_000;
const TICK_MS = 100;
const WORDS = { start: "started", wake: "woke", sleep: "put to sleep", page_out: "paged out", stop: "stopped" };
const NOUNS = { start: "start", wake: "wake", sleep: "sleep", page_out: "page-out", stop: "stop" };
const GOING = { starting: "starting", waking: "waking", sleeping: "going to sleep", stopping: "stopping" };

export class SwapsCard {
  node;
  #live;
  #rows;
  #going;
  #empty = el("p", { class: "empty" }, "No model has come or gone yet.");
  #onlySwaps = el("input", { type: "checkbox", checked: true });
  #moves = [];
  #since = new Map();
  #timer = null;
  #clock = null;
  #restlessUntil = 0;

  constructor(live) {
    this.#live = live;
    const going = el("ul", { class: "swaps going" });
    const list = el("ul", { class: "swaps" });
    this.#going = new Keyed(going, (model) => model.id, () => new Going());
    this.#rows = new Keyed(list, (move) => move.id, (move) => ({ node: row(move), update: () => {} }));
    const phases = el("ul", { class: "legend" }, Object.entries(PHASES).map(([name, words]) => el("li", {}, el("span", { class: "key", data: { fill: name }, aria: { hidden: "true" } }), words)));
    this.node = el(
      "section",
      { class: "card", aria: { label: "Swaps" } },
      el("div", { class: "head" }, el("h2", {}, "Swaps"), el("label", { class: "line" }, this.#onlySwaps, "Only starts and wakes")),
      going,
      list,
      this.#empty,
      el("div", { class: "pad" }, phases),
    );
    this.#onlySwaps.addEventListener("change", () => this.#show());
    live.addEventListener("states", () => this.#soon());
    live.addEventListener("rows", () => this.#soon());
    live.addEventListener("link", () => this.#soon());
    live.addEventListener("models", () => {
      this.#showGoing();
      if (Date.now() < this.#restlessUntil) this.#later();
    });
  }

  show() {
    this.#clock ??= setInterval(() => this.#showGoing(), TICK_MS);
    this.#restlessUntil = Date.now() + MUCH_LATER_MS;
    this.#fetch();
  }

  hide() {
    clearInterval(this.#clock);
    this.#clock = null;
  }

  #soon() {
    this.#restlessUntil = Date.now() + MUCH_LATER_MS;
    this.#later();
  }

  #later() {
    if (this.#clock === null) return;
    this.#timer ??= setTimeout(() => this.#fetch(), LATER_MS);
  }

  async #fetch() {
    clearTimeout(this.#timer);
    this.#timer = null;
    try {
      this.#moves = (await get(`api/swaps?limit=${FETCHED}`)).data;
      this.#show();
    } catch (error) {
      console.info("swaps:", error.message);
    }
  }

  #show() {
    const isUp = ({ kind }) => kind === "start" || kind === "wake";
    // Who made room for another is told in that one's row.
    const isOwn = (move) => isUp(move) || (!this.#onlySwaps.checked && !move.reason.startsWith("evicted by"));
    const moves = this.#moves.filter(isOwn).slice(0, SHOWN);
    this.#rows.show(moves);
    const longest = Math.max(...moves.map((move) => move.swap_s ?? move.duration_s), 0.001);
    for (const move of moves) this.#rows.get(move.id).node.style.setProperty("--share", (move.swap_s ?? move.duration_s) / longest);
    this.#empty.hidden = moves.length > 0;
  }

  #showGoing() {
    const now = Date.now();
    const going = this.#live.models.filter(({ state }) => state in GOING);
    for (const id of this.#since.keys()) if (!going.some((model) => `${model.id} ${model.state}` === id)) this.#since.delete(id);
    for (const { id, state } of going) if (!this.#since.has(`${id} ${state}`)) this.#since.set(`${id} ${state}`, now);
    this.#going.show(going.map((model) => ({ ...model, for: (now - this.#since.get(`${model.id} ${model.state}`)) / 1000 })));
  }
}

class Going {
  node;
  #words = el("p");
  #time = el("span", { class: "number muted" });

  constructor() {
    this.node = el("li", { class: "swap" }, el("span", { class: "pill", data: { tone: "moving" } }, "now"), this.#words, this.#time);
  }

  update({ id, state, for: passed }) {
    setText(this.#words, `${id} is ${GOING[state]}`);
    setText(this.#time, seconds(passed));
  }
}

function row(move) {
  const total = move.swap_s ?? move.duration_s;
  const phases = Object.keys(move.phases).length ? move.phases : { [move.kind === "wake" ? "wake" : "start"]: move.duration_s };
  const isUp = move.kind === "start" || move.kind === "wake";
  const bar = new PhaseBar(isUp ? phases : { evict: move.duration_s });
  bar.node.classList.add("scaled");
  return el(
    "li",
    { class: "swap", data: { move: move.id } },
    el("time", { class: "muted small", datetime: move.timestamp }, moment(move.at)),
    el("div", { class: "what" }, el("p", {}, el("b", {}, move.model), ` ${ended(move)}`), el("p", { class: "muted small" }, told(move))),
    el("div", { class: "how" }, bar.node),
    el("b", { class: "number total" }, seconds(total)),
  );
}

function ended(move) {
  const by = move.driver && move.kind !== "stop" ? ` by ${move.driver}` : "";
  return move.result === "ok" ? `${WORDS[move.kind]}${by}` : `${NOUNS[move.kind]} ${move.result}`;
}

function told(move) {
  const gone = Object.entries(Object.groupBy(move.departures, ({ kind }) => kind));
  const room = gone.map(([kind, list]) => `${listed(list.map(({ model }) => model))} ${WORDS[kind]}`);
  const reason = move.reason === "asked" ? "by hand" : move.reason;
  return [reason, ...room, move.error].filter(Boolean).join(" · ");
}
