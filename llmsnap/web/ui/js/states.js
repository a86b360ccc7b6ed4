// The states of a model: how they look, and what can be ordered in each; names and colours.

const TONES = {
  stopped: "stopped",
  starting: "moving",
  ready: "ready",
  sleeping: "moving",
  asleep: "asleep",
  paging: "asleep",
  waking: "moving",
  stopping: "moving",
  failed: "failed",
};

/** llama-swap's words, which events use, in the API's. */
const OTHER_WORDS = { sleepPending: "sleeping", shutdown: "stopped" };

/** What the state is called in `/api/models`. */
export function stateNamed(word) {
  return OTHER_WORDS[word] ?? word;
}

/** The colours of a state. */
export function tone(state) {
  return TONES[state] ?? "stopped";
}

/** The orders that a model in `state` can be given: `up` is load or wake, `down` is sleep. */
export function orders({ state, driver }) {
  const isUp = state === "ready";
  const isAsleep = ["asleep", "paging", "sleeping"].includes(state);
  return {
    load: state === "stopped" || state === "failed",
    wake: isAsleep,
    sleep: isUp && Boolean(driver),
    unload: isUp || isAsleep || state === "starting" || state === "waking",
  };
}

/** What people call a device. */
export function deviceNamed(device) {
  return { host: "RAM", swap: "swap" }[device] ?? device.replace(/^gpu(\d+)$/, "GPU $1");
}

const FILLS = 8;

/** Gives each model a colour of its own, as far as there are enough. */
export class Fills {
  #of = new Map();

  of(model) {
    if (!this.#of.has(model)) this.#of.set(model, String(this.#of.size % FILLS));
    return this.#of.get(model);
  }
}

export const fills = new Fills();
