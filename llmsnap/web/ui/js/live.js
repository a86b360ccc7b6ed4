// What is the case now: told by events, looked at where nothing tells, for all views.

import { get } from "./api.js";
import { follow } from "./feed.js";

/** Between two looks when something has happened; a burst of events is one look. */
const CALM_MS = 120;
/** Between two looks at what no event tells (memory, idle times), and at all when the line is lost. */
const LOOK_MS = 2_000;

/** Tells of `models`, `devices`, `requests`, `moves`, `rows`, `states`, `profile` and `link`. */
export class Live extends EventTarget {
  models = [];
  peers = [];
  devices = [];
  faults = [];
  /** Requests under way, by id. */
  requests = new Map();
  profile = null;
  link = "connecting";
  #looking = null;
  #again = false;

  /** Begin; never ends. */
  start() {
    follow((type, data) => this.#heard(type, data), (state) => this.#linked(state));
    setInterval(() => document.hidden || this.look(), LOOK_MS);
    document.addEventListener("visibilitychange", () => document.hidden || this.look());
    this.look();
  }

  /** Look at models and devices soon; returns when that is done. */
  look() {
    if (this.#looking) this.#again = true;
    this.#looking ??= this.#lookNow().finally(() => {
      this.#looking = null;
      if (!this.#again) return;
      this.#again = false;
      this.look();
    });
    return this.#looking;
  }

  async #lookNow() {
    await new Promise((go) => setTimeout(go, CALM_MS));
    const asked = [this.#lookAtModels(), this.#lookAtDevices()];
    if (this.link !== "live") asked.push(this.#lookAtRequests());
    const failed = (await Promise.allSettled(asked)).filter(({ status }) => status === "rejected");
    if (failed.length) console.info("look:", failed[0].reason.message);
  }

  async #lookAtModels() {
    this.models = (await get("api/models")).models;
    this.#tell("models");
  }

  async #lookAtDevices() {
    const { devices, faults } = await get("api/devices");
    this.devices = devices;
    this.faults = faults;
    this.#tell("devices");
  }

  async #lookAtRequests() {
    const { requests } = await get("api/inflight");
    this.#take({ operation: "snapshot", requests });
  }

  #heard(type, data) {
    switch (type) {
      case "modelStatus":
        this.peers = data.filter((model) => model.peerID);
        this.#tell("states", data.filter((model) => !model.peerID));
        this.look();
        break;
      case "inflight":
        if (this.#take(data)) this.look();
        break;
      case "activity":
        this.#tell("rows", data);
        break;
      case "profileChanged":
        this.profile = data.active;
        this.#tell("profile");
        break;
    }
  }

  /** Take in news of requests; returns whether one came, went or has another state. */
  #take({ operation, requests, request, id }) {
    const isGrowth = operation === "upsert" && this.requests.get(request.id)?.state === request.state;
    if (operation === "snapshot") this.requests = new Map(requests.map((one) => [one.id, dated(one)]));
    else if (operation === "upsert") this.requests.set(request.id, dated(request));
    else this.requests.delete(id);
    this.#tell("requests");
    return !isGrowth;
  }

  #linked(state) {
    if (state === this.link) return;
    this.link = state;
    this.#tell("link");
  }

  #tell(kind, detail = null) {
    this.dispatchEvent(new CustomEvent(kind, { detail }));
  }
}

/** The request with the moment of its arrival on this page's own clock. */
function dated(request) {
  return { ...request, arrived: Date.now() - request.elapsed_ms };
}
