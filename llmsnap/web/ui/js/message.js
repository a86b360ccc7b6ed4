// One message of a conversation: its text as it comes, and under an answer what it cost.

import { el, setText } from "./dom.js";
import { count, rate, seconds } from "./format.js";
import { PhaseBar } from "./phases.js";

export class Message {
  node = el("li", { class: "message" });
  #who = el("p", { class: "small muted who" });
  #thought = el("p", { class: "text" });
  #reasoning = el("details", { class: "reasoning small", hidden: true }, el("summary", {}, "Reasoning"), this.#thought);
  #text = el("p", { class: "text" });
  #error = el("p", { class: "complaint small", role: "alert", hidden: true });
  #cost = el("div", { class: "cost", hidden: true });
  #wait = el("p", { class: "small muted", role: "status" });
  #isMeasured = false;

  constructor() {
    this.node.append(this.#who, this.#reasoning, this.#text, this.#wait, this.#error, this.#cost);
  }

  update({ role, model, content, reasoning, state, error, measured, began, modelState }) {
    this.node.dataset.role = role;
    this.node.dataset.state = state ?? "";
    setText(this.#who, role === "user" ? "You" : model);
    setText(this.#text, content);
    setText(this.#thought, reasoning ?? "");
    this.#reasoning.hidden = !reasoning;
    setText(this.#error, state === "failed" ? error : "");
    this.#error.hidden = state !== "failed";
    setText(this.#wait, waiting(state, modelState));
    this.#wait.title = state === "waiting" ? `for ${seconds((performance.now() - began) / 1000)}` : "";
    if (measured && !this.#isMeasured) this.#measure(measured);
  }

  #measure({ ttft, total, written, cached, prompt, rate: speed, timing, finish }) {
    this.#isMeasured = true;
    this.#cost.hidden = false;
    const facts = [
      ["first token", seconds(ttft)],
      ["tokens/s", rate(speed)],
      ["written", count(written)],
      ["from cache", cached === null ? "–" : `${count(cached)} of ${count(prompt)}`],
      ["in all", seconds(total)],
    ];
    if (finish === "length") facts.push(["ended", "at the limit"]);
    this.#cost.append(el("dl", { class: "measures" }, facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", { class: "number" }, value)))));
    if (Object.keys(timing).length) this.#cost.append(new PhaseBar(timing).node);
  }
}

function waiting(state, modelState) {
  if (state === "stopped") return "stopped by you";
  if (state !== "waiting") return "";
  return modelState && modelState !== "ready" ? `waiting, the model is ${modelState}` : "waiting for the first token";
}
