// Which profile is active, where there are any.

import { ask, get } from "./api.js";
import { el } from "./dom.js";
import { complain } from "./notices.js";

export class Profiles {
  node;
  #select = el("select");

  constructor(live) {
    this.node = el("label", { class: "line", hidden: true }, "Profile", this.#select);
    this.#select.addEventListener("change", () => this.#activate());
    live.addEventListener("profile", () => this.#show());
  }

  async #show() {
    try {
      const { active, profiles } = await get("api/profiles");
      this.node.hidden = profiles.length === 0;
      const options = profiles.map(({ id, description }) => el("option", { value: id, title: description }, id));
      this.#select.replaceChildren(el("option", { value: "" }, "none"), ...options);
      this.#select.value = active ?? "";
    } catch (error) {
      console.info("profiles:", error.message);
    }
  }

  async #activate() {
    try {
      await ask("api/profiles/active", { method: "PUT", json: { name: this.#select.value || null } });
    } catch (error) {
      complain(error.message);
    }
    await this.#show();
  }
}
