// The lines of a log: what is kept of them, and which ones have what is searched for.

import { plain } from "./ansi.js";

/** Lines that are kept; then the oldest go, some at a time. */
export const MOST_LINES = 20_000;
const GO_AT_ONCE = 2_000;
/** Of one line; what is longer is cut, so that one line can't fill the page. */
const MOST_CHARACTERS = 4_000;

export class Lines {
  /** Raw lines, oldest first. */
  all = [];
  /** Which of them are shown, when only those that match are. */
  matching = null;
  /** How many were dropped at the beginning. */
  dropped = 0;
  #rest = "";
  #pattern = null;

  /** Take in a piece of text, which may end in the middle of a line. */
  add(text) {
    const lines = (this.#rest + text).split("\n");
    this.#rest = lines.pop().slice(0, 64 * 1024);
    const from = this.all.length;
    for (const line of lines) {
      const shown = line.endsWith("\r") ? line.slice(0, -1) : line;
      this.all.push(shown.length > MOST_CHARACTERS ? `${shown.slice(0, MOST_CHARACTERS)}…` : shown);
    }
    if (this.matching) for (let at = from; at < this.all.length; at += 1) if (this.matches(at)) this.matching.push(at);
    if (this.all.length > MOST_LINES) this.#drop(this.all.length - MOST_LINES + GO_AT_ONCE);
  }

  clear() {
    this.all = [];
    this.dropped = 0;
    this.#rest = "";
    if (this.matching) this.matching = [];
  }

  /** Search for `text`, upper and lower case alike; an empty one ends the search. */
  search(text) {
    this.#pattern = text ? text.toLowerCase() : null;
    this.matching = null;
    if (!this.#pattern) return;
    this.matching = [];
    for (let at = 0; at < this.all.length; at += 1) if (this.matches(at)) this.matching.push(at);
  }

  matches(at) {
    return plain(this.all[at]).toLowerCase().includes(this.#pattern);
  }

  get wanted() {
    return this.#pattern ?? "";
  }

  #drop(count) {
    this.all.splice(0, count);
    this.dropped += count;
    if (this.matching) this.matching = this.matching.filter((at) => at >= count).map((at) => at - count);
  }
}
