// How models went from state to state: past moves out of the database, newer ones as they are told.

/** What each kind of move looks like while it goes on, and where it ends. */
const MOVES = {
  start: { during: "starting", done: "ready", failed: "failed" },
  wake: { during: "waking", done: "ready", failed: "asleep" },
  sleep: { during: "sleeping", done: "asleep", failed: "ready" },
  page_out: { during: "paging", done: "asleep", failed: "asleep" },
  stop: { during: "stopping", done: "stopped", failed: "stopped" },
};
/** Changes that are kept of a model. */
const MOST = 2_000;

/** Changes of one thing over time, oldest first; moments in ms. */
class Track {
  changes = [];

  add(at, value) {
    if (this.changes.at(-1)?.value === value) return;
    this.changes.push({ at, value });
    if (this.changes.length > MOST) this.changes.splice(0, MOST / 4);
  }

  /** The pieces between two moments, clipped to them: `{from, to, value}`. */
  pieces(from, to) {
    const { changes } = this;
    const found = [];
    for (let at = changes.length - 1; at >= 0; at -= 1) {
      const ends = changes[at + 1]?.at ?? to;
      if (ends <= from) break;
      if (changes[at].at < to) found.unshift({ from: Math.max(from, changes[at].at), to: Math.min(to, ends), value: changes[at].value });
    }
    return found;
  }
}

export class History {
  #states = new Map();
  #waits = new Map();
  #answers = new Map();
  #since = Date.now();

  /** The names of all models of which something is known. */
  get models() {
    return [...new Set([...this.#states.keys(), ...this.#waits.keys(), ...this.#answers.keys()])].sort();
  }

  /** Events begin anew: what was before is what moves say of it. */
  begin() {
    this.#since = Date.now();
  }

  /** Take in past moves, in any order; what was told since the beginning stays as it was told. */
  seed(moves) {
    const told = this.#states;
    this.#states = new Map();
    for (const move of moves.toSorted((a, b) => a.at - b.at)) {
      const { during, done, failed } = MOVES[move.kind];
      const began = move.at * 1000;
      this.#before(move.model, began, during);
      this.#before(move.model, began + move.duration_s * 1000, move.result === "ok" ? done : failed);
    }
    for (const [model, track] of told) {
      for (const { at, value } of track.changes) if (at >= this.#since) trackOf(this.#states, model).add(at, value);
    }
  }

  #before(model, at, state) {
    if (at < this.#since) trackOf(this.#states, model).add(at, state);
  }

  /** Take in what is the case now. */
  hear(states) {
    const now = Date.now();
    for (const { id, state } of states) trackOf(this.#states, id).add(now, state);
  }

  /** Take in the requests under way now. */
  use(requests) {
    const now = Date.now();
    const count = (state) => {
      const of = new Set();
      for (const request of requests) if (request.state === state) of.add(request.model);
      return of;
    };
    for (const [tracks, models] of [[this.#waits, count("waiting")], [this.#answers, count("answering")]]) {
      for (const model of new Set([...tracks.keys(), ...models])) trackOf(tracks, model).add(now, models.has(model));
    }
  }

  /** What `model` was between two moments: pieces of its states, of waiting and of answering. */
  of(model, from, to) {
    const isOn = ({ value }) => value;
    return {
      states: this.#states.get(model)?.pieces(from, to) ?? [],
      waits: this.#waits.get(model)?.pieces(from, to).filter(isOn) ?? [],
      answers: this.#answers.get(model)?.pieces(from, to).filter(isOn) ?? [],
    };
  }
}

function trackOf(tracks, model) {
  if (!tracks.has(model)) tracks.set(model, new Track());
  return tracks.get(model);
}
