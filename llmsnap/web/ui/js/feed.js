// What happens, as the proxy tells it; asked again and again when the line breaks.

import { ask } from "./api.js";
import { events } from "./sse.js";

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 5_000;
/** The proxy says something at least every 15 s; who is silent for longer is gone. */
const SILENCE_MS = 40_000;

/**
 * Follow `/api/events` for ever. `tell(type, data)` hears of each event, `state(name)` of the line:
 * "live" or "lost".
 */
export async function follow(tell, state) {
  let wait = FIRST_WAIT_MS;
  for (;;) {
    const line = new AbortController();
    try {
      await hear(line, (type, data) => {
        wait = FIRST_WAIT_MS;
        tell(type, data);
      }, state);
    } catch (error) {
      if (error.name !== "AbortError") console.info("events:", error.message);
    } finally {
      line.abort();
    }
    state("lost");
    await new Promise((go) => setTimeout(go, wait));
    wait = Math.min(wait * 1.6, LONGEST_WAIT_MS);
  }
}

async function hear(line, tell, state) {
  const answer = await ask("api/events?no-logs", { signal: line.signal, headers: { Accept: "text/event-stream" } });
  let silence = setTimeout(() => line.abort(), SILENCE_MS);
  try {
    for await (const { data } of events(answer)) {
      clearTimeout(silence);
      silence = setTimeout(() => line.abort(), SILENCE_MS);
      state("live");
      if (!data) continue;
      const { type, data: inner } = JSON.parse(data);
      tell(type, JSON.parse(inner));
    }
  } finally {
    clearTimeout(silence);
  }
}
