// The API key: asked for when the proxy wants one, kept in this tab, or in this browser if wished.

import { el } from "./dom.js";

const NAME = "llmsnap.key";
let asking = null;

/** The key that was given, or an empty text. */
export function savedKey() {
  return sessionStorage.getItem(NAME) ?? localStorage.getItem(NAME) ?? "";
}

/** Forget it everywhere. */
export function forgetKey() {
  sessionStorage.removeItem(NAME);
  localStorage.removeItem(NAME);
}

/** Ask for a key, once however many wait for it. */
export function askKey(complaint) {
  asking ??= prompt(complaint).finally(() => {
    asking = null;
  });
  return asking;
}

function prompt(complaint) {
  return new Promise((given) => {
    const key = el("input", { type: "password", name: "key", required: true, autocomplete: "current-password" });
    const keep = el("input", { type: "checkbox", name: "keep" });
    const form = el(
      "form",
      {},
      el("h2", { id: "key-title" }, "This proxy wants an API key"),
      el("p", { class: "muted small" }, "One of apiKeys in its configuration. It goes to this proxy and nowhere else."),
      complaint ? el("p", { role: "alert", class: "complaint" }, complaint) : null,
      el("label", { class: "field" }, "API key", key),
      el("label", { class: "line" }, keep, "Keep it in this browser"),
      el("button", { class: "strong", type: "submit" }, "Go on"),
    );
    const dialog = el("dialog", { aria: { labelledby: "key-title" } }, form);
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      (keep.checked ? localStorage : sessionStorage).setItem(NAME, key.value);
      dialog.close();
      dialog.remove();
      given();
    });
    document.body.append(dialog);
    dialog.showModal();
    key.focus();
  });
}
