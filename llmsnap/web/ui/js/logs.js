// The view of logs: followed as they come, with colours, searched.

import { ask, modelPath } from "./api.js";
import { pieces, plain } from "./ansi.js";
import { el, setText } from "./dom.js";
import { count } from "./format.js";
import { Lines } from "./lines.js";
import { ListWindow } from "./window.js";

const SOURCES = [["", "all on standard output"], ["proxy", "the proxy"], ["upstream", "all models"]];
const AGAIN_MS = 1_500;

export class LogsView {
  #live;
  #lines = new Lines();
  #window;
  #source = el("select", { aria: { label: "Which log" } });
  #search = el("input", { type: "search", placeholder: "Search", aria: { label: "Search the log" } });
  #only = el("input", { type: "checkbox" });
  #follow = el("input", { type: "checkbox", checked: true });
  #found = el("span", { class: "muted small number found", role: "status" });
  #state = el("p", { class: "muted small number" });
  #current = -1;
  #reading = null;
  #frame = null;
  #moved = 0;

  constructor(root, live) {
    this.#live = live;
    this.#window = new ListWindow((at) => this.#line(at), (isAtEnd) => this.#scrolled(isAtEnd));
    this.#window.node.setAttribute("role", "log");
    this.#window.node.setAttribute("aria-live", "off");
    this.#window.node.setAttribute("aria-label", "Lines of the log");
    const previous = el("button", { type: "button", class: "icon", aria: { label: "Match before" }, onclick: () => this.#step(-1) }, "↑");
    const next = el("button", { type: "button", class: "icon", aria: { label: "Match after" }, onclick: () => this.#step(1) }, "↓");
    const clear = el("button", { type: "button", onclick: () => this.#clear() }, "Clear");
    const save = el("button", { type: "button", onclick: () => this.#save() }, "Save");
    root.append(
      el("div", { class: "head" }, el("div", {}, el("h1", { id: "logs-title" }, "Logs"), this.#state), this.#source, clear, save),
      el(
        "section",
        { class: "card log", aria: { label: "Log" } },
        el(
          "div",
          { class: "head" },
          el("div", { class: "search" }, this.#search, previous, next, this.#found),
          el("label", { class: "line" }, this.#only, "Only matches"),
          el("label", { class: "line" }, this.#follow, "Follow"),
        ),
        this.#window.node,
      ),
    );
    this.#listen();
  }

  #listen() {
    this.#search.addEventListener("input", () => this.#searchFor(this.#search.value));
    this.#search.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.#step(event.shiftKey ? -1 : 1);
    });
    this.#only.addEventListener("change", () => this.#soon());
    this.#follow.addEventListener("change", () => this.#soon());
    this.#source.addEventListener("change", () => {
      const name = this.#source.value.replace(/^model:/, "");
      location.hash = name ? `logs/${encodeURIComponent(name)}` : "logs";
    });
    this.#live.addEventListener("models", () => this.#showSources());
  }

  /** Follow the log called `name`: nothing, proxy, upstream, or a model. */
  show(name) {
    this.#showSources();
    const value = SOURCES.some(([source]) => source === name) ? name : `model:${name}`;
    if (![...this.#source.options].some((option) => option.value === value)) {
      this.#source.append(el("option", { value }, name));
    }
    this.#source.value = value;
    this.hide();
    this.#clear();
    this.#read(name);
  }

  hide() {
    this.#reading?.abort();
    this.#reading = null;
  }

  #showSources() {
    const names = this.#live.models.map(({ id }) => id);
    if (this.#source.dataset.shown === JSON.stringify(names)) return;
    this.#source.dataset.shown = JSON.stringify(names);
    const chosen = this.#source.value;
    this.#source.replaceChildren(
      ...SOURCES.map(([value, words]) => el("option", { value }, words)),
      ...names.map((name) => el("option", { value: `model:${name}` }, name)),
    );
    if (chosen) this.#source.value = chosen;
  }

  async #read(name) {
    const reading = new AbortController();
    this.#reading = reading;
    for (let isFirst = true; !reading.signal.aborted; isFirst = false) {
      try {
        const path = name ? modelPath("logs/stream/", name) : "logs/stream";
        const answer = await ask(path, { signal: reading.signal, headers: { Accept: "text/plain" } });
        if (!isFirst) this.#clear(); // the history comes anew
        const texts = answer.body.pipeThrough(new TextDecoderStream()).getReader();
        for (;;) {
          const { done, value } = await texts.read();
          if (done || reading.signal.aborted) break;
          this.#add(value);
        }
      } catch (error) {
        if (reading.signal.aborted) return;
        setText(this.#state, `reading again: ${error.message}`);
        if (error.status === 400) return;
      }
      await new Promise((go) => setTimeout(go, AGAIN_MS));
    }
  }

  #add(text) {
    const dropped = this.#lines.dropped;
    const shown = this.#shown;
    const before = shown ? shown.length : 0;
    this.#lines.add(text);
    if (this.#lines.dropped > dropped) {
      this.#moved += this.#shown ? Math.max(0, before - this.#shown.length) : this.#lines.dropped - dropped;
      this.#current -= this.#lines.dropped - dropped;
    }
    this.#soon();
  }

  #clear() {
    this.#lines.clear();
    this.#current = -1;
    this.#soon();
  }

  /** The lines that are shown, or null for all of them. */
  get #shown() {
    return this.#only.checked ? this.#lines.matching : null;
  }

  #soon() {
    this.#frame ??= requestAnimationFrame(() => {
      this.#frame = null;
      const { all, matching, dropped } = this.#lines;
      this.#window.show(this.#shown?.length ?? all.length, { toEnd: this.#follow.checked, moved: this.#moved });
      this.#moved = 0;
      setText(this.#state, `${count(all.length)} lines${dropped ? `, ${count(dropped)} older ones gone` : ""}`);
      setText(this.#found, matching ? found(matching, this.#current) : "");
    });
  }

  #scrolled(isAtEnd) {
    this.#follow.checked = isAtEnd;
  }

  #searchFor(text) {
    this.#lines.search(text);
    this.#current = -1;
    this.#soon();
  }

  #step(way) {
    const { matching } = this.#lines;
    if (!matching?.length) return;
    const from = matching.indexOf(this.#current);
    const to = from < 0 ? (way > 0 ? 0 : matching.length - 1) : (from + way + matching.length) % matching.length;
    this.#current = matching[to];
    this.#follow.checked = false;
    this.#soon();
    requestAnimationFrame(() => this.#window.goTo(this.#shown ? to : this.#current));
  }

  #line(at) {
    const number = this.#shown ? this.#shown[at] : at;
    const line = this.#lines.all[number] ?? "";
    const node = el("div", { class: number === this.#current ? "row current" : "row" });
    for (const { text, classes, color } of pieces(line)) {
      const span = el("span", { class: classes.join(" ") || null });
      if (color) span.style.color = color;
      span.append(...marked(text, this.#lines.wanted));
      node.append(span);
    }
    return node;
  }

  #save() {
    const text = (this.#shown?.map((at) => this.#lines.all[at]) ?? this.#lines.all).map(plain).join("\n");
    const link = el("a", { href: URL.createObjectURL(new Blob([text, "\n"], { type: "text/plain" })), download: "llmsnap.log" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), AGAIN_MS);
  }
}

function found(matching, current) {
  const at = matching.indexOf(current);
  return `${at < 0 ? "" : `${count(at + 1)} of `}${count(matching.length)} found`;
}

/** The text with what is searched for marked. */
function marked(text, wanted) {
  if (!wanted) return [text];
  const parts = [];
  const lower = text.toLowerCase();
  let from = 0;
  for (let at = lower.indexOf(wanted); at >= 0; at = lower.indexOf(wanted, from)) {
    parts.push(text.slice(from, at), el("mark", {}, text.slice(at, at + wanted.length)));
    from = at + wanted.length;
  }
  return [...parts, text.slice(from)];
}
