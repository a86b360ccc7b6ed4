// Elements without markup: whatever text is given becomes a text, never HTML.

const SVG = "http://www.w3.org/2000/svg";

/**
 * Make an element. Attributes: `on…` are listeners, `true` and `false` switch, null is left out;
 * `data` and `aria` take objects. Children are nodes or texts; null ones are left out.
 */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) set(node, name, value);
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

function set(node, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
  else if (name === "data") Object.assign(node.dataset, value);
  else if (name === "aria") for (const [key, text] of Object.entries(value)) node.setAttribute(`aria-${key}`, text);
  else node.setAttribute(name, value === true ? "" : value);
}

/** Make an element of SVG; attributes are plain. */
export function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** Set a text only if it is another one, so that selections and screen readers are left alone. */
export function setText(node, text) {
  const value = String(text ?? "");
  if (node.textContent !== value) node.textContent = value;
}

/** Show a list in place: what stays keeps its node, its focus and its open parts. */
export class Keyed {
  #parent;
  #key;
  #make;
  #first;
  #shown = new Map();

  /** `make(item)` returns `{node, update(item)}`; the first children are left alone, if it says so. */
  constructor(parent, key, make, first = 0) {
    this.#first = first;
    this.#parent = parent;
    this.#key = key;
    this.#make = make;
  }

  /** Bring the children in line with `items`. */
  show(items) {
    const next = new Map();
    for (const item of items) {
      const key = this.#key(item);
      const part = this.#shown.get(key) ?? this.#make(item);
      part.update(item);
      next.set(key, part);
    }
    for (const [key, part] of this.#shown) if (!next.has(key)) part.node.remove();
    let place = this.#parent.childNodes[this.#first] ?? null;
    for (const { node } of next.values()) {
      if (node === place) place = place.nextSibling;
      else this.#parent.insertBefore(node, place);
    }
    this.#shown = next;
  }

  /** The part that shows `key`, if there is one. */
  get(key) {
    return this.#shown.get(key);
  }
}

/** Show widths of a bar: `parts` are `{fill, share, title, isFaint}`, shares of 1. */
export function fillBar(bar, parts) {
  while (bar.children.length > parts.length) bar.lastChild.remove();
  while (bar.children.length < parts.length) bar.append(el("span"));
  parts.forEach(({ fill, share, title, isFaint }, at) => {
    const span = bar.children[at];
    span.dataset.fill = fill;
    span.title = title ?? "";
    span.classList.toggle("faint", Boolean(isFaint));
    span.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  });
}
