// A list of any length of which only the lines in sight are in the page.

import { el } from "./dom.js";

/** Lines above and below those in sight. */
const MARGIN = 20;
/** So near to the end counts as at the end, in lines. */
const NEAR = 2;

export class ListWindow {
  node;
  #height = el("div", { class: "height" });
  #rows = el("div", { class: "rows" });
  #render;
  #count = 0;
  #lineHeight = 0;
  #first = -1;
  #last = -1;
  #frame = null;

  /** `render(at)` returns the node of one line; all have one height. `scrolled(isAtEnd)` is told. */
  constructor(render, scrolled) {
    this.#render = render;
    this.#height.append(this.#rows);
    this.node = el("div", { class: "window", tabindex: "0" }, this.#height);
    this.node.addEventListener("scroll", () => {
      scrolled(this.isAtEnd);
      this.#soon();
    });
    new ResizeObserver(() => this.#soon()).observe(this.node);
  }

  get isAtEnd() {
    const { scrollTop, clientHeight, scrollHeight } = this.node;
    return scrollTop + clientHeight >= scrollHeight - NEAR * this.#line;
  }

  /** There are `count` lines now, some of which may have changed; `toEnd`: and the last are wanted. */
  show(count, { toEnd = false, moved = 0 } = {}) {
    this.#count = count;
    this.#height.style.height = `${count * this.#line}px`;
    if (moved) this.node.scrollTop -= moved * this.#line;
    if (toEnd) this.node.scrollTop = this.node.scrollHeight;
    this.#first = -1;
    this.#soon();
  }

  /** Bring a line into the middle. */
  goTo(at) {
    this.node.scrollTop = at * this.#line - this.node.clientHeight / 2;
    this.#first = -1;
    this.#soon();
  }

  get #line() {
    this.#lineHeight ||= parseFloat(getComputedStyle(this.node).lineHeight) || 0;
    return this.#lineHeight || 20;
  }

  #soon() {
    this.#frame ??= requestAnimationFrame(() => {
      this.#frame = null;
      this.#draw();
    });
  }

  #draw() {
    const first = Math.max(0, Math.floor(this.node.scrollTop / this.#line) - MARGIN);
    const last = Math.min(this.#count, Math.ceil((this.node.scrollTop + this.node.clientHeight) / this.#line) + MARGIN);
    if (first === this.#first && last === this.#last) return;
    this.#first = first;
    this.#last = last;
    this.#rows.style.transform = `translateY(${first * this.#line}px)`;
    const nodes = [];
    for (let at = first; at < last; at += 1) nodes.push(this.#render(at));
    this.#rows.replaceChildren(...nodes);
  }
}
