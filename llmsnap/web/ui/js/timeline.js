// A lane a model: what it was in the last minutes, up to now, and who waited for it.

import { ask } from "./api.js";
import { el, Keyed, setText } from "./dom.js";
import { seconds } from "./format.js";
import { History } from "./history.js";
import { stateNamed } from "./states.js";

const WINDOWS = [[60, "1 minute"], [240, "4 minutes"], [1200, "20 minutes"], [7200, "2 hours"]];
const FRAME_MS = 200;
/** Narrower pieces are drawn this wide, in percent: a swap of 50 ms is still seen. */
const LEAST = 0.35;
/** The header tells whole seconds only. */
const CLOCKS_DIFFER_S = 2;
const LEGEND = [["ready", "up"], ["starting", "starting"], ["waking", "waking"], ["sleeping", "going to sleep"], ["asleep", "asleep"], ["stopping", "stopping"], ["failed", "failed"]];

export class TimelineCard {
  node;
  #live;
  #history = new History();
  #lanes;
  #axis = el("div", { class: "axis", aria: { hidden: "true" } });
  #empty = el("p", { class: "empty" }, "Nothing has come or gone lately.");
  #window = el("select", { aria: { label: "How far back the timeline goes" } });
  #clock = null;

  constructor(live) {
    this.#live = live;
    const list = el("ul", { class: "lanes" });
    this.#lanes = new Keyed(list, (lane) => lane.model, (lane) => new Lane(lane.model));
    this.#window.append(...WINDOWS.map(([length, words]) => el("option", { value: length }, words)));
    this.#window.value = "240";
    this.#window.addEventListener("change", () => this.#draw());
    this.node = el(
      "section",
      { class: "card timeline", aria: { label: "Timeline of states" } },
      el("div", { class: "head" }, el("h2", {}, "Timeline"), this.#window),
      el("div", { class: "pad" }, list, this.#axis, this.#empty, legend()),
    );
    live.addEventListener("states", ({ detail }) => {
      this.#history.hear(detail.map(({ id, state }) => ({ id, state: stateNamed(state) })));
      this.#draw();
    });
    live.addEventListener("models", () => this.#history.hear(live.models));
    live.addEventListener("requests", () => this.#history.use([...live.requests.values()]));
    live.addEventListener("link", () => live.link === "live" && this.#seed());
  }

  show() {
    this.#clock ??= setInterval(() => document.hidden || this.#draw(), FRAME_MS);
    this.#draw();
  }

  hide() {
    clearInterval(this.#clock);
    this.#clock = null;
  }

  async #seed() {
    this.#history.begin();
    try {
      const answer = await ask("api/swaps?limit=500");
      const ahead = aheadBy(answer.headers.get("Date"));
      const { data } = await answer.json();
      this.#history.seed(data.map((move) => ({ ...move, at: move.at + ahead })));
    } catch (error) {
      console.info("swaps:", error.message);
    }
  }

  #draw() {
    if (this.#clock === null) return;
    const to = Date.now();
    const length = Number(this.#window.value) * 1000;
    const lanes = this.#history.models
      .map((model) => ({ model, from: to - length, length, ...this.#history.of(model, to - length, to) }))
      .filter(({ states, waits }) => waits.length || states.some(({ value }) => value !== "stopped"));
    this.#lanes.show(lanes);
    this.#empty.hidden = lanes.length > 0;
    this.#axis.hidden = lanes.length === 0;
    if (this.#axis.dataset.length !== String(length)) {
      this.#axis.dataset.length = String(length);
      this.#axis.replaceChildren(...marks(length / 1000).map((mark) => el("span", {}, mark)));
    }
  }
}

class Lane {
  node;
  #states = el("div", { class: "track" });
  #uses = el("div", { class: "track uses" });
  #now = el("span", { class: "unseen" });

  constructor(model) {
    this.node = el("li", { data: { lane: model } }, el("span", { class: "label", title: model }, model), this.#now, el("div", { class: "tracks", aria: { hidden: "true" } }, this.#states, this.#uses));
  }

  update({ from, length, states, waits, answers }) {
    const seen = states.filter(({ value }) => value !== "stopped");
    place(this.#states, seen.map((piece) => ({ ...piece, look: piece.value })), from, length);
    const uses = [...answers.map((piece) => ({ ...piece, look: "answering" })), ...waits.map((piece) => ({ ...piece, look: "waiting" }))];
    place(this.#uses, uses, from, length);
    setText(this.#now, states.at(-1)?.value ?? "");
  }
}

/** By how many seconds this machine's clock is ahead of the proxy's, as far as that matters. */
function aheadBy(date) {
  const ahead = (Date.now() - Date.parse(date ?? "")) / 1000;
  return Math.abs(ahead) > CLOCKS_DIFFER_S ? ahead : 0;
}

/** Words for four quarters of the window, and for now. */
function marks(length) {
  const ago = (past) => (length < 120 ? `−${past} s` : `−${past / 60} min`);
  return [...[1, 0.75, 0.5, 0.25].map((part) => ago(part * length)), "now"];
}

function place(track, pieces, from, length) {
  while (track.children.length > pieces.length) track.lastChild.remove();
  while (track.children.length < pieces.length) track.append(el("span"));
  pieces.forEach((piece, at) => {
    const span = track.children[at];
    const width = ((piece.to - piece.from) / length) * 100;
    span.dataset.look = piece.look;
    span.title = `${piece.look} for ${seconds((piece.to - piece.from) / 1000)}`;
    span.style.left = `${((piece.from - from) / length) * 100}%`;
    span.style.width = `${Math.max(width, LEAST)}%`;
  });
}

function legend() {
  const items = [...LEGEND, ["answering", "answering"], ["waiting", "somebody waits"]];
  return el("ul", { class: "legend" }, items.map(([look, words]) => el("li", {}, el("span", { class: "key", data: { look }, aria: { hidden: "true" } }), words)));
}
