// What a wait is made of, as a bar: phases follow each other and add up.

import { el, fillBar } from "./dom.js";
import { seconds } from "./format.js";

/** The phases in their order, with the words for them. */
export const PHASES = {
  queue: "in the queue",
  drain: "others finish",
  evict: "making room",
  wake: "waking",
  start: "starting",
  restore: "restoring",
  prefill: "reading the prompt",
  pause: "paused",
};

export class PhaseBar {
  node = el("div", { class: "bar phases", role: "img" });

  /** `phases`: seconds by name. `rest`: seconds of the answer after them. */
  constructor(phases, rest = 0) {
    const parts = Object.keys(PHASES).filter((name) => phases[name] > 0).map((name) => ({ fill: name, words: PHASES[name], spent: phases[name] }));
    if (rest > 0) parts.push({ fill: "answer", words: "answering", spent: rest });
    const total = parts.reduce((sum, { spent }) => sum + spent, 0) || 1;
    fillBar(this.node, parts.map(({ fill, words, spent }) => ({ fill, share: spent / total, title: `${words} ${seconds(spent)}` })));
    this.node.setAttribute("aria-label", parts.map(({ words, spent }) => `${words} ${seconds(spent)}`).join(", "));
  }
}
