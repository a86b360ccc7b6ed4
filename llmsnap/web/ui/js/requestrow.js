// One past request: a row, the sentence on why it was slow, and all that is known of it on demand.

import { el, setText } from "./dom.js";
import { count, moment, rate, seconds } from "./format.js";
import { showCapture } from "./capture.js";
import { PhaseBar } from "./phases.js";

export const HEADS = [
  { words: "Time" },
  { words: "Model" },
  { words: "Status" },
  { words: "Took", kind: "number" },
  { words: "First token", kind: "number" },
  { words: "Prompt", kind: "number" },
  { words: "Cached", kind: "number" },
  { words: "Written", kind: "number" },
  { words: "Tokens/s", kind: "number" },
  { words: "Details" },
];

/** A `tbody` of its own, so that what unfolds stays with its row. */
export class RequestRow {
  node = el("tbody", { class: "request" });
  #cells = HEADS.map(({ kind }) => el("td", { class: kind }));
  #why = el("p", { class: "why small" });
  #more = el("tr", { class: "more-row", hidden: true });
  #toggle = el("button", { type: "button", class: "quiet small", aria: { expanded: "false" } });
  #row = null;

  constructor() {
    const [, , status] = this.#cells;
    status.append(el("span", { class: "pill" }));
    this.#cells.at(-1).append(this.#toggle);
    this.#toggle.addEventListener("click", () => this.#unfold());
    setText(this.#toggle, "Show");
    this.node.append(
      el("tr", {}, this.#cells),
      el("tr", { class: "why-row" }, el("td", { colspan: HEADS.length }, this.#why)),
      this.#more,
    );
  }

  update(row) {
    if (this.#row && this.#row.has_capture === row.has_capture) return; // rows never change otherwise
    this.#row = row;
    this.node.dataset.request = row.id;
    const [time, model, status, took, first, prompt, cached, written, speed] = this.#cells;
    time.replaceChildren(el("time", { datetime: row.timestamp }, moment(row.at)));
    setText(model, row.model);
    const pill = status.firstChild;
    setText(pill, row.error && row.status < 400 ? "cut" : row.status);
    pill.dataset.tone = row.error || row.status >= 400 ? "failed" : "ready";
    setText(took, seconds(row.duration_s));
    setText(first, seconds(row.ttft_s ?? (row.is_stream ? row.first_byte_s : null)));
    setText(prompt, count(row.computed));
    setText(cached, count(row.cached));
    setText(written, count(row.generated));
    setText(speed, speedOf(row.generated, row.generation_s));
    setText(this.#why, row.why);
    this.#toggle.setAttribute("aria-label", `Details of request ${row.id} for ${row.model}`);
  }

  #unfold() {
    const isOpen = this.#toggle.getAttribute("aria-expanded") === "true";
    this.#toggle.setAttribute("aria-expanded", String(!isOpen));
    setText(this.#toggle, isOpen ? "Show" : "Hide");
    this.#more.hidden = isOpen;
    if (!isOpen) this.#more.replaceChildren(el("td", { colspan: HEADS.length }, details(this.#row)));
  }
}

/** Tokens per second; a server that doesn't say how long it took has no speed. */
function speedOf(tokens, spent) {
  return rate(tokens && spent ? tokens / spent : null);
}

function details(row) {
  const { phases } = row;
  const listed = Object.entries(phases).filter(([, spent]) => spent > 0).map(([name, spent]) => `${name} ${seconds(spent)}`);
  const facts = [
    ["request", `${row.id}: ${row.path}`],
    ["client", row.client],
    ["model was", row.start],
    ["until the first byte", `${seconds(row.first_byte_s)}${listed.length ? `: ${listed.join(", ")}` : ""}`],
    ["prompt read at", row.computed && row.prompt_s ? `${speedOf(row.computed, row.prompt_s)} tokens/s` : ""],
    ["drafted", row.drafted ? `${count(row.accepted)} of ${count(row.drafted)} accepted` : ""],
    ["stood still", row.pauses ? `${row.pauses} times, ${seconds(row.paused_s)}` : ""],
    ["answer", `${row.kind || "none"}${row.is_stream ? ", streamed" : ""}`],
    ["error", row.error],
  ].filter(([, value]) => value);
  const capture = row.has_capture
    ? el("button", { type: "button", onclick: () => showCapture(row.id) }, "Request and answer")
    : null;
  return el(
    "div",
    { class: "details" },
    new PhaseBar(phases, row.duration_s - row.first_byte_s).node,
    el("dl", { class: "facts" }, facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))),
    capture,
  );
}
