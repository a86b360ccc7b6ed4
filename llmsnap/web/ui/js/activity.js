// The view of activity: what is under way, sums, and past requests with why they were slow.

import { get } from "./api.js";
import { el, Keyed, setText } from "./dom.js";
import { count, plural } from "./format.js";
import { RequestsCard } from "./requests.js";
import { HEADS, RequestRow } from "./requestrow.js";

const SIZES = [25, 100, 500];
/** Rows come in bursts; the table is fetched at most this often. */
const CALM_MS = 1_000;

export class ActivityView {
  #live;
  #under;
  #rows;
  #sums = el("dl", { class: "sums" });
  #model = el("select", { aria: { label: "Only requests for" } });
  #sort = el("select", { aria: { label: "Order" } }, el("option", { value: "id" }, "newest first"), el("option", { value: "duration" }, "longest first"), el("option", { value: "cached" }, "most from cache first"));
  #size = el("select", { aria: { label: "Rows on a page" } }, SIZES.map((size) => el("option", { value: size }, `${size} rows`)));
  #text = el("input", { type: "search", placeholder: "Filter these rows", aria: { label: "Filter these rows by any of their words" } });
  #empty = el("p", { class: "empty" });
  #where = el("span", { class: "muted small number" });
  #newer = el("button", { type: "button", disabled: true }, "Back");
  #older = el("button", { type: "button", disabled: true }, "Next");
  #page = 1;
  #asked = "";
  #found = { data: [], total: 0, total_pages: 0 };
  #isShown = false;
  #timer = null;

  constructor(root, live) {
    this.#live = live;
    this.#under = new RequestsCard(live);
    const head = el("tr", {}, HEADS.map(({ words, kind }) => el("th", { scope: "col", class: kind }, words)));
    const table = el("table", { class: "activity", aria: { label: "Past requests" } }, el("thead", {}, head));
    this.#rows = new Keyed(table, (row) => row.id, () => new RequestRow(), 1);
    root.append(
      el("div", { class: "head" }, el("h1", { id: "activity-title" }, "Activity"), this.#sums),
      this.#under.node,
      el(
        "section",
        { class: "card", aria: { label: "Past requests" } },
        el("div", { class: "head filters" }, this.#text, this.#model, this.#sort, this.#size),
        el("div", { class: "scroll" }, table),
        this.#empty,
        el("div", { class: "head pages" }, this.#where, this.#newer, this.#older),
      ),
    );
    this.#text.addEventListener("input", () => this.#show());
    for (const choice of [this.#model, this.#sort, this.#size]) choice.addEventListener("change", () => this.#turn(1));
    this.#newer.addEventListener("click", () => this.#turn(this.#page - 1));
    this.#older.addEventListener("click", () => this.#turn(this.#page + 1));
    live.addEventListener("rows", () => this.#soon());
    live.addEventListener("link", () => this.#soon()); // there was no telling of rows till then
    live.addEventListener("models", () => this.#showModels());
    live.addEventListener("link", () => live.link === "live" && this.#soon());
  }

  show() {
    this.#isShown = true;
    this.#under.show();
    this.#showModels();
    this.#fetch();
  }

  hide() {
    this.#isShown = false;
    this.#under.hide();
  }

  #showModels() {
    const names = this.#live.models.map(({ id }) => id);
    if (this.#model.dataset.shown === JSON.stringify(names)) return;
    this.#model.dataset.shown = JSON.stringify(names);
    const chosen = this.#model.value;
    this.#model.replaceChildren(el("option", { value: "" }, "all models"), ...names.map((name) => el("option", { value: name }, name)));
    this.#model.value = names.includes(chosen) ? chosen : "";
  }

  #turn(page) {
    this.#page = page;
    return this.#fetch();
  }

  #soon() {
    if (this.#isShown) this.#timer ??= setTimeout(() => this.#fetch(), CALM_MS);
  }

  async #fetch() {
    clearTimeout(this.#timer);
    this.#timer = null;
    const model = new URLSearchParams(this.#model.value && { model: this.#model.value });
    const query = new URLSearchParams([...model, ["limit", this.#size.value], ["page", this.#page], ["sort", this.#sort.value]]);
    const asked = (this.#asked = `${query}`);
    try {
      const [found, sums] = await Promise.all([get(`api/activity?${query}`), get(`api/metrics/stats?${model}`)]);
      if (asked !== this.#asked) return; // something else was asked for meanwhile
      this.#found = found;
      this.#showSums(sums);
      this.#show();
    } catch (error) {
      setText(this.#empty, error.message);
      this.#empty.hidden = false;
    }
  }

  #show() {
    const { data, total, total_pages: pages } = this.#found;
    const wanted = this.#text.value.trim().toLowerCase();
    const rows = wanted ? data.filter((row) => words(row).includes(wanted)) : data;
    this.#rows.show(rows);
    setText(this.#empty, total ? "No row here has these words." : "No request is kept: none has ended yet, or activity is off.");
    this.#empty.hidden = rows.length > 0;
    setText(this.#where, `${plural(total, "request")}${pages > 1 ? `, page ${this.#page} of ${pages}` : ""}`);
    this.#newer.disabled = this.#page <= 1;
    this.#older.disabled = this.#page >= pages;
  }

  #showSums(sums) {
    const cached = sums.total_cache_tokens;
    const read = sums.total_input_tokens;
    const share = cached + read ? ` (${Math.round((100 * cached) / (cached + read))} %)` : "";
    const shown = [
      ["requests", count(sums.total_requests)],
      ["prompt tokens read", count(read)],
      ["from cache", `${count(cached)}${share}`],
      ["written", count(sums.total_output_tokens)],
    ];
    this.#sums.replaceChildren(...shown.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", { class: "number" }, value))));
  }
}

function words(row) {
  return [row.id, row.model, row.path, row.status, row.start, row.client, row.why, row.error].join("\n").toLowerCase();
}
