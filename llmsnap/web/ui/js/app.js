// Begins everything: one view is shown at a time, named by the fragment of the address.

import { ActivityView } from "./activity.js";
import { startCondition } from "./condition.js";
import { setText } from "./dom.js";
import { Live } from "./live.js";
import { LogsView } from "./logs.js";
import { ModelsView } from "./models.js";
import { PlaygroundView } from "./playground.js";
import { startTheme } from "./theme.js";

const live = new Live();
const root = (name) => document.querySelector(`#view-${name}`);
const views = {
  models: new ModelsView(root("models"), live),
  activity: new ActivityView(root("activity"), live),
  logs: new LogsView(root("logs"), live),
  playground: new PlaygroundView(root("playground"), live),
};
const LINK_WORDS = { connecting: "connecting", live: "live", lost: "reconnecting" };
let shown = null;

/** Show the view that the address names; what follows its name is its own. */
function route() {
  const [name, ...rest] = location.hash.slice(1).split("/");
  const wanted = Object.hasOwn(views, name) ? name : "models";
  if (shown !== wanted) {
    if (shown) views[shown].hide();
    for (const view of Object.keys(views)) root(view).hidden = view !== wanted;
    for (const link of document.querySelectorAll(".top nav a")) {
      if (link.hash === `#${wanted}`) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    document.title = `${wanted[0].toUpperCase()}${wanted.slice(1)} · llmsnap`;
    shown = wanted;
  }
  views[wanted].show(unescaped(rest.join("/")));
}

function unescaped(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // somebody typed a lone percent sign
  }
}

live.addEventListener("link", () => {
  const link = document.querySelector("#link");
  link.dataset.state = live.link;
  setText(link.querySelector(".words"), LINK_WORDS[live.link]);
  link.title = live.link === "live" ? "News come as they happen" : "News are asked for every 2 s";
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  document.querySelector("#main").focus();
});
addEventListener("hashchange", route);
startTheme(document.querySelector("#theme"));
route();
live.start();
startCondition(document.querySelector("#condition"));
