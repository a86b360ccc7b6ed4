// A request and its answer as they were, in a window over the page.

import { get } from "./api.js";
import { el } from "./dom.js";
import { complain } from "./notices.js";

/** More of a body isn't shown; the API has it whole. */
const MOST_CHARACTERS = 200_000;

export async function showCapture(id) {
  let kept;
  try {
    kept = await get(`api/captures/${id}`);
  } catch (error) {
    complain(error.message);
    return;
  }
  const close = el("button", { type: "button" }, "Close");
  const dialog = el(
    "dialog",
    { class: "wide", aria: { label: `Request ${id} and its answer` } },
    el("div", { class: "head" }, el("h2", {}, `Request ${id}: ${kept.req_path}`), close),
    part("What was asked", kept.req_headers, kept.req_body),
    part("What was answered", kept.resp_headers, kept.resp_body),
  );
  close.addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

function part(title, headers, body) {
  const lines = Object.entries(headers ?? {}).map(([name, value]) => `${name}: ${value}`);
  return el(
    "section",
    {},
    el("h3", {}, title),
    el("details", {}, el("summary", { class: "small muted" }, "Headers"), el("pre", {}, lines.join("\n"))),
    el("pre", {}, readable(body)),
  );
}

function readable(base64) {
  const bytes = Uint8Array.from(atob(base64 ?? ""), (character) => character.charCodeAt(0));
  const text = new TextDecoder().decode(bytes);
  try {
    return JSON.stringify(JSON.parse(text), null, 2).slice(0, MOST_CHARACTERS);
  } catch {
    return text.slice(0, MOST_CHARACTERS) || "(nothing)";
  }
}
