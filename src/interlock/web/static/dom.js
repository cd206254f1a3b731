// The ground of the pages: elements from values (never from markup), the router, and small conveniences.
// Values become text nodes, whatever they are: an object from a payload is shown as JSON. Attributes come from `attrs`
// alone, which only our own code calls: JSON has no objects of its class. So nothing that a user, a chart or a handler
// wrote can become part of the page.

const SVG = "http://www.w3.org/2000/svg";
const BARE = new Set(["svg", "path", "rect", "text", "title"]);

class Attributes {
  constructor(given) {
    this.given = given;
  }
}

/** The attributes of an element, for `h`. The names are always written in our code; values may come from data. */
export const attrs = (given) => new Attributes(given);

/** Any value as text: a string as it is, others as JSON. `String()` would call what an object has as `toString`. */
export const shown = (value) => (typeof value === "string" ? value : (JSON.stringify(value) ?? ""));

/** An element: `h("a.link", attrs({href: "/"}), "text", child, [children])`. Null and false are left out. */
export function h(tag, ...rest) {
  const [name, ...classes] = tag.split(".");
  const node = BARE.has(name) ? document.createElementNS(SVG, name) : document.createElement(name);
  if (classes.length) node.setAttribute("class", classes.join(" "));
  for (const each of rest) add(node, each);
  return node;
}

function add(node, each) {
  if (each === null || each === undefined || each === false) return;
  if (Array.isArray(each)) for (const one of each) add(node, one);
  else if (each instanceof Node) node.append(each);
  else if (each instanceof Attributes) for (const [key, value] of Object.entries(each.given)) set(node, key, value);
  else node.append(shown(each));
}

function set(node, key, value) {
  if (value === null || value === undefined || value === false) return;
  if (typeof value === "function") node.addEventListener(key.slice(2), value);
  else if (key === "style") for (const [name, one] of Object.entries(value)) node.style.setProperty(name, one);
  else if (key === "value") node.value = shown(value);
  else if (key === "class") node.classList.add(...shown(value).split(" ").filter(Boolean));
  else node.setAttribute(key, value === true ? "" : shown(value));
}

/** Put children in place of those that are there. */
export function fill(node, ...children) {
  node.replaceChildren();
  add(node, children);
  return node;
}

/** Set attributes of an element that is there. */
export function change(node, attributes) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === false) node.removeAttribute(key);
    else set(node, key, value);
  }
}

/** Call a function once the calls have stopped for a while. */
export function later(ms, call) {
  let timer;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => call(...given), ms);
  };
}

// Router: every page has an address, and its filters are in it.

const places = [];
let leaving = [];
let turn = 0;

/** A page for addresses that match; `show(main, params, query)` may call `onLeave`. */
export function page(pattern, show) {
  places.push([new RegExp(`^${pattern}$`), show]);
}

/** Do something when a page is left; at once, when it was left before it was even shown. */
export function onLeave(inside, act) {
  if (inside.turn === turn) leaving.push(act);
  else act();
}

export function go(address, replace = false) {
  history[replace ? "replaceState" : "pushState"](null, "", address);
  return render();
}

/** Change the query of the address without showing the page anew. */
export function keepQuery(changes) {
  const query = new URLSearchParams(location.search);
  for (const [key, value] of Object.entries(changes)) {
    if (value === null || value === "") query.delete(key);
    else query.set(key, value);
  }
  const text = query.toString();
  history.replaceState(null, "", location.pathname + (text ? `?${text}` : ""));
}

export async function render() {
  const mine = ++turn;
  for (const act of leaving.splice(0)) act();
  const main = document.getElementById("main");
  const path = location.pathname;
  for (const [pattern, show] of places) {
    const match = pattern.exec(path);
    if (!match) continue;
    const inside = h("div.page");
    inside.turn = mine;
    try {
      await show(inside, match.slice(1).map(decodeURIComponent), new URLSearchParams(location.search));
    } catch (problem) {
      if (mine !== turn) return;
      fill(inside, trouble(problem));
    }
    if (mine !== turn) return;
    fill(main, inside);
    document.dispatchEvent(new CustomEvent("shown"));
    return;
  }
  document.title = "Not found · Interlock";
  fill(main, trouble({title: "Not found", detail: `There is no page at ${path}.`}));
  document.dispatchEvent(new CustomEvent("shown"));
}

/** A problem, in words. */
export function trouble(problem) {
  return h(
    "section.card.trouble",
    attrs({role: "alert"}),
    h("h1", problem.title || "Something went wrong"),
    h("p", problem.detail || problem.message || "The server gave no reason."),
    problem.hint && h("p.muted", problem.hint),
    problem.code && h("p.muted", h("code", problem.code)),
    h(
      "p.ways",
      h("a", attrs({href: "/"}), "To the fleet"),
      history.length > 1 && h("button.link", attrs({onclick: () => history.back()}), "Back"),
    ),
  );
}

addEventListener("popstate", () => render());
document.addEventListener("click", (event) => {
  const link = event.target.closest && event.target.closest("a[href]");
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  const href = link.getAttribute("href");
  if (!href || !href.startsWith("/") || href.startsWith("/api/") || link.target) return;
  event.preventDefault();
  go(href);
  scrollTo(0, 0);
});

/** Say something in the corner, and to screen readers. */
export function toast(text, kind = "") {
  const box = document.getElementById("toasts");
  const node = h("div.toast", attrs({class: kind}), text);
  box.append(node);
  setTimeout(() => node.remove(), kind === "bad" ? 9000 : 4500);
}
