// What the operator should know of the proxy as a whole: a mistake in its configuration, or a pause.

import { get } from "./api.js";
import { setText } from "./dom.js";

const LOOK_MS = 5_000;

/** Show it in `line` for as long as it is so. */
export async function startCondition(line) {
  for (;;) {
    if (!document.hidden) await look(line);
    await new Promise((go) => setTimeout(go, LOOK_MS));
  }
}

async function look(line) {
  try {
    const words = inWords(await get("api/status"));
    setText(line, words);
    line.hidden = !words;
  } catch (error) {
    console.info("status:", error.message); // that the line is broken is shown elsewhere
  }
}

function inWords({ config, released }) {
  const said = [];
  if (config.error) said.push(`The configuration wasn't taken, the last good one goes on: ${config.error}`);
  if (released) said.push(`All memory is given back ${until(released.left_s)}; requests ${released.refuse ? "are refused" : "wait"}.`);
  if (config.restart_needed.length) said.push(`Only after a restart: ${config.restart_needed.join(", ")}`);
  return said.join("\n");
}

function until(left_s) {
  return left_s === null ? "until somebody resumes" : `for ${Math.ceil(left_s)} s`;
}
