// Short news at the top; failures stay until they are read.

import { el } from "./dom.js";

const NEWS_MS = 6_000;
const MOST = 4;

/** Show a failure until it is closed. */
export function complain(text) {
  show(text, "failure");
}

/** Show news for a while. */
export function tell(text) {
  const note = show(text, "news");
  setTimeout(() => note.remove(), NEWS_MS);
}

function show(text, kind) {
  const box = document.querySelector("#notices");
  const close = el("button", { type: "button", class: "quiet icon", aria: { label: "Close this notice" } }, "×");
  const note = el("div", { class: "notice", data: { kind }, role: kind === "failure" ? "alert" : "status" }, el("p", {}, text), close);
  close.addEventListener("click", () => note.remove());
  box.append(note);
  while (box.children.length > MOST) box.firstChild.remove();
  return note;
}
