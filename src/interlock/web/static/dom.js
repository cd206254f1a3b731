// Elements and the router. Elements are built from values, never from markup.
// Every value becomes a text node; an object from a payload is shown as JSON. Attributes come only from `attrs`, which
// only our own code calls: JSON contains no objects of its class. So nothing that a user, a chart or a handler wrote can
// become part of the page.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "path", "rect", "text", "title"]);

class Attributes {
  constructor(given) {
    this.given = given;
  }
}

/** The attributes of an element, for `h`. The names are constants of our code; values may come from data. */
export const attrs = (given) => new Attributes(given);

/** Any value as text: a string as it is, others as JSON. `String()` would call a `toString` from data. */
export const asText = (value) => (typeof value === "string" ? value : (JSON.stringify(value) ?? ""));

/** An element: `h("a.link", attrs({href: "/"}), "text", child, [children])`. Null and false are skipped. */
export function h(tag, ...rest) {
  const [name, ...classes] = tag.split(".");
  const node = SVG_TAGS.has(name) ? document.createElementNS(SVG, name) : document.createElement(name);
  if (classes.length) node.setAttribute("class", classes.join(" "));
  for (const each of rest) add(node, each);
  return node;
}

function add(node, each) {
  if (each === null || each === undefined || each === false) return;
  if (Array.isArray(each)) for (const one of each) add(node, one);
  else if (each instanceof Node) node.append(each);
  else if (each instanceof Attributes) for (const [key, value] of Object.entries(each.given)) set(node, key, value);
  else node.append(asText(each));
}

function set(node, key, value) {
  if (value === null || value === undefined || value === false) return;
  if (typeof value === "function") node.addEventListener(key.slice(2), value);
  else if (key === "style") for (const [name, one] of Object.entries(value)) node.style.setProperty(name, one);
  else if (key === "value") node.value = asText(value);
  else if (key === "class") node.classList.add(...asText(value).split(" ").filter(Boolean));
  else node.setAttribute(key, value === true ? "" : asText(value));
}

/** Replace the children of an element. */
export function fill(node, ...children) {
  node.replaceChildren();
  add(node, children);
  return node;
}

/** Set attributes of an element; null and false remove them. */
export function change(node, attributes) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === false) node.removeAttribute(key);
    else set(node, key, value);
  }
}

/** Call a function once no call has come for some milliseconds. */
export function debounce(ms, call) {
  let timer;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => call(...given), ms);
  };
}

// Router: every page has an address, which contains its filters.

const pages = [];
let leaveActions = [];
let renders = 0;

/** Register a page for the addresses that match; `show(main, params, query)` may call `onLeave`. */
export function page(pattern, show) {
  pages.push([new RegExp(`^${pattern}$`), show]);
}

/** Call a function when the user leaves the page; immediately, if that has happened already. */
export function onLeave(inside, act) {
  if (inside.render === renders) leaveActions.push(act);
  else act();
}

export function go(address, replace = false) {
  history[replace ? "replaceState" : "pushState"](null, "", address);
  return render();
}

/** Change the query of the address without rendering the page again. */
export function updateQuery(changes) {
  const query = new URLSearchParams(location.search);
  for (const [key, value] of Object.entries(changes)) {
    if (value === null || value === "") query.delete(key);
    else query.set(key, value);
  }
  const text = query.toString();
  history.replaceState(null, "", location.pathname + (text ? `?${text}` : ""));
}

export async function render() {
  const mine = ++renders;
  for (const act of leaveActions.splice(0)) act();
  const main = document.getElementById("main");
  const path = location.pathname;
  for (const [pattern, show] of pages) {
    const match = pattern.exec(path);
    if (!match) continue;
    const inside = h("div.page");
    inside.render = mine;
    try {
      await show(inside, match.slice(1).map(decodeURIComponent), new URLSearchParams(location.search));
    } catch (problem) {
      if (mine !== renders) return;
      fill(inside, errorCard(problem));
    }
    if (mine !== renders) return;
    fill(main, inside);
    document.dispatchEvent(new CustomEvent("shown"));
    return;
  }
  document.title = "Page not found · Interlock";
  fill(main, errorCard({title: "Page not found", detail: path}));
  document.dispatchEvent(new CustomEvent("shown"));
}

/** A problem as a card with links back. */
export function errorCard(problem) {
  return h(
    "section.card.error",
    attrs({role: "alert"}),
    h("h1", problem.title || "Something went wrong"),
    h("p", problem.detail || problem.message || "The server sent no details."),
    problem.hint && h("p.muted", problem.hint),
    problem.code && h("p.muted", h("code", problem.code)),
    h(
      "p.links",
      h("a", attrs({href: "/"}), "Back to overview"),
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

/** Show a short message in the corner and announce it to screen readers. */
export function toast(text, kind = "") {
  const box = document.getElementById("toasts");
  const node = h("div.toast", attrs({class: kind}), text);
  box.append(node);
  setTimeout(() => node.remove(), kind === "bad" ? 9000 : 4500);
}
