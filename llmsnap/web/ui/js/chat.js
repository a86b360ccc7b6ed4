// One question to a model, its answer as it comes, and what it cost.

import { ask } from "./api.js";
import { events } from "./sse.js";

/**
 * Ask; `told({content, reasoning})` hears each piece. Returns what was measured:
 * `{ttft, total, cached, prompt, written, rate, timing, finish}`, with null for what nobody tells.
 * Throws what went wrong, also in the middle of the answer.
 */
export async function chat(body, { signal, session, told }) {
  const began = performance.now();
  const answer = await ask("v1/chat/completions", {
    method: "POST",
    json: { ...body, stream: true, stream_options: { include_usage: true } },
    signal,
    headers: { Accept: "text/event-stream", "X-Session-ID": session },
  });
  const measured = new Measured(began, answer.headers.get("Server-Timing") ?? "");
  for await (const { data, comment } of events(answer)) {
    if (comment) {
      if (comment.startsWith("server-timing")) measured.timing = timings(comment.slice("server-timing".length));
      continue;
    }
    if (data === "[DONE]") break;
    const piece = JSON.parse(data);
    if (piece.error) throw new Error(piece.error.message ?? String(piece.error));
    measured.take(piece);
    const delta = piece.choices?.[0]?.delta ?? {};
    const content = delta.content ?? "";
    const reasoning = delta.reasoning_content ?? delta.reasoning ?? "";
    if (content || reasoning) {
      measured.first();
      told({ content, reasoning });
    }
  }
  return measured.done();
}

class Measured {
  timing;
  #began;
  #first = null;
  #usage = null;
  #timings = null;
  #finish = null;

  constructor(began, header) {
    this.#began = began;
    this.timing = timings(header);
  }

  first() {
    this.#first ??= performance.now();
  }

  take({ usage, timings: spent, choices }) {
    this.#usage = usage ?? this.#usage;
    this.#timings = spent ?? this.#timings;
    this.#finish = choices?.[0]?.finish_reason ?? this.#finish;
  }

  done() {
    const ended = performance.now();
    const [usage, spent] = [this.#usage ?? {}, this.#timings ?? {}];
    const written = spent.predicted_n ?? usage.completion_tokens ?? null;
    const cached = spent.cache_n ?? usage.prompt_tokens_details?.cached_tokens ?? null;
    const computed = spent.prompt_n ?? null;
    const writing = this.#first === null ? 0 : (ended - this.#first) / 1000;
    return {
      ttft: this.#first === null ? null : (this.#first - this.#began) / 1000,
      total: (ended - this.#began) / 1000,
      written,
      cached,
      prompt: computed === null ? (usage.prompt_tokens ?? null) : computed + (cached ?? 0),
      rate: spent.predicted_per_second ?? (written && writing ? written / writing : null),
      timing: this.timing,
      finish: this.#finish,
    };
  }
}

/** Seconds by phase, out of a `Server-Timing`. */
export function timings(text) {
  const found = {};
  for (const [, name, ms] of text.matchAll(/([\w-]+);dur=([\d.]+)/g)) found[name] = Number(ms) / 1000;
  return found;
}
