// The view to try a model in: a conversation, streamed, with what each answer cost.

import { get } from "./api.js";
import { chat } from "./chat.js";
import { el, Keyed, setText } from "./dom.js";
import { Message } from "./message.js";

const NAME = "llmsnap.playground";

export class PlaygroundView {
  #live;
  #model = el("select", { aria: { label: "Model" } });
  #system = el("textarea", { rows: 2, placeholder: "None" });
  #temperature = el("input", { type: "number", min: 0, max: 2, step: 0.1, placeholder: "the model's own" });
  #most = el("input", { type: "number", min: 1, step: 1, placeholder: "no limit" });
  #talk = el("ol", { class: "talk", aria: { label: "Conversation" } });
  #empty = el("p", { class: "empty" }, "Choose a model and say something. If it isn't up, it is brought up, and you see how long that takes.");
  #text = el("textarea", { rows: 2, placeholder: "Message", aria: { label: "Message" } });
  #send = el("button", { type: "submit", class: "strong" }, "Send");
  #stop = el("button", { type: "button", hidden: true }, "Stop");
  #messages;
  #said = [];
  #running = null;
  #session = `lspg-${crypto.getRandomValues(new Uint32Array(2)).join("")}`;

  constructor(root, live) {
    this.#live = live;
    this.#messages = new Keyed(this.#talk, (said) => said.id, () => new Message());
    const form = el("form", { class: "ask" }, this.#text, el("div", { class: "sends" }, this.#send, this.#stop));
    const again = el("button", { type: "button", onclick: () => this.#startAnew() }, "New conversation");
    root.append(
      el("div", { class: "head" }, el("h1", { id: "playground-title" }, "Playground"), el("label", { class: "line" }, "Model", this.#model), again),
      el(
        "section",
        { class: "card chat", aria: { label: "Chat" } },
        el("details", { class: "settings" }, el("summary", { class: "small" }, "Settings"), this.#settings()),
        el("div", { class: "talk-window" }, this.#empty, this.#talk),
        form,
      ),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#ask();
    });
    this.#text.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        this.#ask();
      }
    });
    this.#stop.addEventListener("click", () => this.#running?.abort());
    this.#model.addEventListener("change", () => localStorage.setItem(NAME, this.#model.value));
  }

  async show() {
    try {
      const { data } = await get("v1/models");
      const names = data.map(({ id }) => id);
      const chosen = this.#model.value || localStorage.getItem(NAME);
      this.#model.replaceChildren(...names.map((name) => el("option", { value: name }, name)));
      if (names.includes(chosen)) this.#model.value = chosen;
    } catch (error) {
      setText(this.#empty, error.message);
    }
  }

  hide() {}

  #settings() {
    const field = (words, input) => el("label", { class: "field" }, words, input);
    return el(
      "div",
      { class: "fields" },
      field("System prompt", this.#system),
      field("Temperature", this.#temperature),
      field("Most tokens", this.#most),
    );
  }

  #startAnew() {
    this.#running?.abort();
    this.#said = [];
    this.#session = `lspg-${crypto.getRandomValues(new Uint32Array(2)).join("")}`;
    this.#show();
    this.#text.focus();
  }

  async #ask() {
    const text = this.#text.value.trim();
    if (!text || this.#running || !this.#model.value) return;
    this.#text.value = "";
    this.#said.push({ id: this.#said.length, role: "user", content: text });
    const body = this.#body();
    const answer = { id: this.#said.length, role: "assistant", model: this.#model.value, content: "", reasoning: "", began: performance.now(), state: "waiting" };
    this.#said.push(answer);
    this.#running = new AbortController();
    this.#show();
    const clock = setInterval(() => this.#show(), 100);
    try {
      answer.measured = await chat(body, {
        signal: this.#running.signal,
        session: this.#session,
        told: ({ content, reasoning }) => {
          answer.state = "answering";
          answer.content += content;
          answer.reasoning += reasoning;
        },
      });
      answer.state = "done";
    } catch (error) {
      answer.state = error.name === "AbortError" ? "stopped" : "failed";
      answer.error = error.message;
    } finally {
      clearInterval(clock);
      this.#running = null;
      this.#show();
      this.#text.focus();
    }
  }

  #body() {
    const messages = this.#turns().map(({ role, content }) => ({ role, content }));
    if (this.#system.value.trim()) messages.unshift({ role: "system", content: this.#system.value.trim() });
    const body = { model: this.#model.value, messages };
    if (this.#temperature.value) body.temperature = Number(this.#temperature.value);
    if (this.#most.value) body.max_tokens = Number(this.#most.value);
    return body;
  }

  /** What was said so far; without questions that got no answer, as some templates want both in turns. */
  #turns() {
    const answers = this.#said.filter(({ role }) => role === "assistant");
    return this.#said.filter((_, at) => answers[Math.floor(at / 2)]?.content !== "");
  }

  #show() {
    const pane = this.#talk.parentElement;
    const isAtEnd = pane.scrollTop + pane.clientHeight >= pane.scrollHeight - 40;
    const current = this.#said.at(-1);
    const state = this.#live.models.find(({ id }) => id === current?.model)?.state ?? "";
    this.#messages.show(this.#said.map((said) => ({ ...said, modelState: said === current ? state : "" })));
    this.#empty.hidden = this.#said.length > 0;
    this.#send.disabled = this.#running !== null;
    this.#stop.hidden = this.#running === null;
    if (isAtEnd) pane.scrollTop = pane.scrollHeight;
  }
}
