// The proxy's API: the key, errors in its own words, and where it is.

import { askKey, forgetKey, savedKey } from "./key.js";

/** The proxy, wherever this page was loaded from: one above `/ui/`. */
const ROOT = new URL("../../", import.meta.url);

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.name = "ApiError";
    this.status = status;
  }
}

/** The address of an API path, which begins without a slash. */
export function address(path) {
  return new URL(path, ROOT);
}

/** A path with a model's name in it: slashes stay, all else is escaped. */
export function modelPath(before, model) {
  return before + model.split("/").map(encodeURIComponent).join("/");
}

/**
 * Ask the proxy; the answer is a 2xx. Throws ApiError with the proxy's own words.
 *
 * Cookies and the browser's own password box are left out of it: the key is asked for here.
 */
export async function ask(path, { method = "GET", json, headers = {}, signal } = {}) {
  for (;;) {
    const key = savedKey();
    const request = { Accept: "application/json", ...headers };
    if (key) request.Authorization = `Bearer ${key}`;
    if (json !== undefined) request["Content-Type"] = "application/json";
    const answer = await fetch(address(path), {
      method,
      signal,
      headers: request,
      body: json === undefined ? undefined : JSON.stringify(json),
      credentials: "omit",
      cache: "no-store",
    });
    if (answer.ok) return answer;
    if (answer.status !== 401) throw new ApiError(answer.status, await said(answer));
    await answer.body?.cancel();
    if (key === savedKey()) forgetKey(); // and not one that was typed in meanwhile
    if (!savedKey()) await askKey(key ? "That key isn't one of this proxy's." : "");
  }
}

/** Ask for JSON. */
export async function get(path, options) {
  return (await ask(path, options)).json();
}

/** Give an order; returns the decoded answer, or its text. */
export async function order(path, options = {}) {
  const answer = await ask(path, { method: "POST", ...options });
  const text = await answer.text();
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

async function said(answer) {
  const text = await answer.text();
  try {
    const { error } = JSON.parse(text);
    return error.message ?? String(error);
  } catch {
    return text.slice(0, 500) || `${answer.status} ${answer.statusText}`;
  }
}
