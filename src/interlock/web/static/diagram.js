// The drawing of a chart: the SVG of the server, coloured by classes. The layout is not changed here.

import {text} from "/static/api.js";
import {attrs, h} from "/static/dom.js";
import {number, short} from "/static/format.js";

/**
 * The smallest scale on opening: labels of 10 pixels, of 8 on a small screen, where the whole matters more. The share
 * of the page that a drawing has next to other cards, and the widest page in pixels.
 */
const READABLE = 0.9;
const READABLE_SMALL = 0.72;
const SMALL = 1000;
const COLUMN = 0.6;
const PAGE = 1432;
const drawings = new Map();
let count = 0;

/** The name of a state as part of an id: letters, digits and hyphens stay, every other byte becomes `_hh`. */
function encoded(name) {
  let out = "";
  for (const byte of new TextEncoder().encode(name)) {
    const one = String.fromCharCode(byte);
    out += /[A-Za-z0-9-]/.test(one) ? one : `_${byte.toString(16).padStart(2, "0")}`;
  }
  return out;
}

/** The drawing as nodes. Our own renderer made it; active content is removed all the same. */
async function loadDrawing(path) {
  if (!drawings.has(path)) drawings.set(path, text(path));
  let source;
  try {
    source = await drawings.get(path);
  } catch (problem) {
    drawings.delete(path);
    throw problem;
  }
  const parsed = new DOMParser().parseFromString(source, "image/svg+xml").documentElement;
  if (parsed.nodeName !== "svg") throw new Error("The drawing is not valid SVG.");
  for (const node of [...parsed.querySelectorAll("script, style, foreignObject, a, image, use")]) node.remove();
  for (const node of parsed.querySelectorAll("*")) {
    for (const each of [...node.attributes])
      if (/^(on|href|xlink|style)/i.test(each.name)) node.removeAttribute(each.name);
  }
  return document.importNode(parsed, true);
}

class Diagram extends HTMLElement {
  /** Show a drawing. `label` names it; with `pick(state)` its states are buttons. */
  async show(path, {label, states, pick} = {}) {
    const svg = await loadDrawing(path);
    this.mark = `d${++count}-`;
    for (const node of svg.querySelectorAll("[id]")) node.id = this.mark + node.id;
    svg.removeAttribute("aria-labelledby");
    for (const node of svg.querySelectorAll("title, desc")) if (node.parentNode === svg) node.remove();
    svg.setAttribute("role", "group");
    svg.setAttribute("aria-label", label);
    this.classList.add("diagram");
    this.natural = Number(svg.getAttribute("width")) || 600;
    this.tall = Number(svg.getAttribute("height")) || 400;
    svg.removeAttribute("height");
    const zoom = (label, sign, act) =>
      h("button.quiet", attrs({type: "button", "aria-label": label, title: label, onclick: act}), sign);
    this.canvas = h("div.canvas", attrs({tabindex: "-1"}), svg);
    this.replaceChildren(
      this.canvas,
      h(
        "div.zoom",
        zoom("Zoom out", "−", () => this.scaled(this.scale / 1.25)),
        zoom("Fit to width", "⤢", () => this.fitWidth()),
        zoom("Zoom in", "+", () => this.scaled(this.scale * 1.25)),
      ),
    );
    this.svg = svg;
    new ResizeObserver(() => this.fixed || this.open()).observe(this.canvas);
    this.nodes = new Map();
    for (const state of states || []) {
      const node = this.part("s", state);
      if (node) this.nodes.set(state, node);
    }
    if (pick) this.listen(pick);
  }

  /** Whether its column next to other cards is too narrow to read it in its whole width. */
  get isWide() {
    return this.natural * READABLE > COLUMN * Math.min(PAGE, innerWidth - 48);
  }

  /** The scale on opening: the whole drawing if its labels are readable then; otherwise the smallest readable one. */
  open() {
    const room = this.canvas.clientWidth - 16;
    if (room <= 0) return;
    const high = Math.min(parseFloat(getComputedStyle(this.canvas).maxHeight) || innerHeight, innerHeight) - 16;
    const whole = Math.min(room / this.natural, high / this.tall);
    const least = innerWidth < SMALL ? READABLE_SMALL : READABLE;
    this.scaled(Math.min(1.1, Math.max(least, whole)), true);
  }

  fitWidth() {
    const room = this.canvas.clientWidth - 16;
    if (room > 0) this.scaled(Math.min(1.1, room / this.natural));
  }

  scaled(scale, byItself = false) {
    this.fixed = !byItself;
    this.scale = Math.min(3, Math.max(0.1, scale));
    this.svg.setAttribute("width", Math.round(this.natural * this.scale));
    if (byItself) this.scrollToActive();
  }

  /** Scroll to the active state within the frame; the page itself does not scroll. */
  scrollToActive() {
    const active = [...this.querySelectorAll(".on")].pop() || (this.nodes && this.nodes.values().next().value);
    if (!active || !active.getBoundingClientRect) return;
    const [box, frame] = [active.getBoundingClientRect(), this.canvas.getBoundingClientRect()];
    if (box.top < frame.top || box.bottom > frame.bottom)
      this.canvas.scrollTop += (box.top + box.bottom - frame.top - frame.bottom) / 2;
    if (box.left < frame.left || box.right > frame.right)
      this.canvas.scrollLeft += (box.left + box.right - frame.left - frame.right) / 2;
  }

  part(letter, name, rest = "") {
    return this.querySelector(`[id="${this.mark}${letter}-${encoded(name)}${rest}"]`);
  }

  listen(pick) {
    let first = true;
    const names = [...this.nodes.keys()];
    for (const [state, node] of this.nodes) {
      node.setAttribute("tabindex", first ? "0" : "-1");
      node.setAttribute("role", "button");
      node.setAttribute("aria-label", state);
      node.classList.add("pick");
      first = false;
      node.addEventListener("click", (event) => {
        event.stopPropagation();
        pick(state);
      });
      node.addEventListener("keydown", (event) => {
        const at = names.indexOf(state);
        const step = {ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1}[event.key];
        if (event.key === "Enter" || event.key === " ") pick(state);
        else if (step) {
          const next = this.nodes.get(names[(at + step + names.length) % names.length]);
          node.setAttribute("tabindex", "-1");
          next.setAttribute("tabindex", "0");
          next.focus();
        } else return;
        event.preventDefault();
        event.stopPropagation();
      });
    }
  }

  /** Highlight the active states, the last transitions, and the states that were visited before. */
  highlight({active = [], transitions = [], visited = []}) {
    const on = new Set(active);
    const before = new Set(visited);
    for (const [state, node] of this.nodes) {
      node.classList.toggle("on", on.has(state));
      node.classList.toggle("visited", before.has(state) && !on.has(state));
    }
    for (const node of this.querySelectorAll(".fired")) node.classList.remove("fired");
    for (const {source, ordinal} of transitions) {
      const name = `${this.mark}t-${encoded(source)}-${ordinal}`;
      const text = this.querySelector(`[id="${name}"]`);
      if (text) text.classList.add("fired");
      for (const wire of this.querySelectorAll("[data-transitions]")) {
        if (wire.dataset.transitions.split(" ").some((each) => this.mark + each === name)) wire.classList.add("fired");
      }
    }
    this.scrollToActive();
  }

  /** Show the number of entities in each state, as badge and colour, and a warning where some are stuck. */
  showPopulation(states) {
    const atoms = states.filter((each) => !["compound", "parallel", "ended"].includes(each.type));
    const most = Math.max(1, ...atoms.map((each) => each.entities));
    for (const each of states) {
      const node = this.nodes.get(each.id);
      if (!node) continue;
      node.classList.toggle("heat", each.entities > 0 && atoms.includes(each));
      node.style.setProperty("--share", `${Math.round(4 + (38 * Math.log1p(each.entities)) / Math.log1p(most))}%`);
      node.classList.toggle("stuck", Boolean(each.stuck));
      const stuck = each.stuck ? `, ${number(each.stuck)} stuck` : "";
      node.setAttribute("aria-label", `${each.id}, ${number(each.entities)} entities${stuck}`);
      this.badge(each.id, each.entities ? short(each.entities) : "", Boolean(each.stuck));
    }
  }

  badge(state, label, stuck) {
    const slot = this.part("b", state);
    if (!slot) return;
    slot.replaceChildren();
    slot.classList.toggle("alert", stuck);
    if (!label) return;
    const shown = stuck ? `⚠ ${label}` : label;
    const wide = Math.max(20, shown.length * 6.2 + 10);
    const left = Math.max(0, 40 - wide);
    slot.append(
      h("rect", attrs({x: left, y: 0, width: wide, height: 16, rx: 8})),
      h("text", attrs({x: left + wide / 2, y: 11.6, "text-anchor": "middle"}), shown),
    );
  }
}

customElements.define("il-diagram", Diagram);

/** A drawing in a scrolling frame. */
export async function diagram(path, options) {
  const node = document.createElement("il-diagram");
  await node.show(path, options);
  return node;
}
