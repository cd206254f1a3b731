// The frame of all pages: header, keyboard shortcuts, theme; then the page of the address.

import {authenticate, get, me, signOut} from "/static/api.js";
import {attrs, change, debounce, errorCard, fill, go, h, render} from "/static/dom.js";
import {dialog} from "/static/components.js";
import {entityPath, kindPath} from "/static/format.js";
import "/static/pages/overview.js";
import "/static/pages/kind.js";
import "/static/pages/entity.js";
import "/static/pages/work.js";
import "/static/pages/audit.js";
import "/static/pages/bulk.js";
import "/static/pages/reports.js";
import "/static/pages/simulator.js";

const LINKS = [
  ["/", "Overview"],
  ["/effects", "Effects"],
  ["/sagas", "Sagas"],
  ["/bulk", "Bulk send"],
  ["/audit", "Audit"],
  ["/reports", "Reports"],
  ["/simulator", "Simulator"],
];
const KEYS = [
  ["/", "Search"],
  ["g o", "Overview"],
  ["g e", "Effects"],
  ["g s", "Sagas"],
  ["g b", "Bulk send"],
  ["g a", "Audit"],
  ["g r", "Reports"],
  ["g m", "Simulator"],
  ["j k", "Next and previous row"],
  ["← →", "Previous and next version"],
  ["e", "Send an event"],
  ["t", "Light or dark theme"],
  ["?", "Keyboard shortcuts"],
];

function switchTheme() {
  const current =
    document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  document.documentElement.dataset.theme = current === "dark" ? "light" : "dark";
  try {
    localStorage.setItem("theme", document.documentElement.dataset.theme);
  } catch {
    /* storage is disabled: the theme lasts as long as this page */
  }
}

function showHeader() {
  const found = h("ul", attrs({id: "found", role: "listbox", hidden: true}));
  const field = h("input", attrs({
    id: "search",
    type: "search",
    placeholder: "Search by id",
    "aria-label": "Search entities by id prefix",
    autocomplete: "off",
    "aria-controls": "found",
  }));
  const searchSoon = debounce(140, () => search(field, found));
  field.addEventListener("input", searchSoon);
  field.addEventListener("keydown", (event) => {
    const rows = [...found.querySelectorAll("a")];
    if (event.key === "ArrowDown" && rows.length) rows[0].focus();
    else if (event.key === "Enter" && rows.length) {
      field.blur();
      rows[0].click();
    } else if (event.key === "Escape") field.blur();
    else return;
    event.preventDefault();
  });
  document.addEventListener("shown", () => {
    if (document.activeElement !== field) {
      change(found, {hidden: true});
      field.value = "";
    }
    const path = location.pathname;
    for (const link of document.querySelectorAll("#top nav a")) {
      const mine = link.getAttribute("href");
      change(link, {
        "aria-current": (
          mine === "/" ? path === "/" || path.startsWith("/k/") || path.startsWith("/e/") : path.startsWith(mine)
        )
          ? "page"
          : null,
      });
    }
  });
  fill(
    document.getElementById("top"),
    h(
      "a.brand",
      attrs({href: "/", "aria-label": "Interlock, overview"}),
      h(
        "svg",
        attrs({viewBox: "0 0 32 32", width: 20, height: 20, "aria-hidden": "true"}),
        h("path.edge", attrs({d: "M16 3 29 16 16 29 3 16Z"})),
        h("path.core", attrs({d: "M16 11 21 16 16 21 11 16Z"})),
      ),
      "Interlock",
    ),
    h(
      "nav",
      attrs({"aria-label": "Pages"}),
      LINKS.map(([href, name]) => h("a", attrs({href}), name)),
    ),
    h("div.search", field, found),
    h("span.live", attrs({id: "live", role: "img", "aria-label": "Live updates", "data-state": "none"})),
    me.read_only && h("span.pill", "read-only"),
    h("button.quiet", attrs({"aria-label": "Switch between light and dark theme", title: "Theme (t)", onclick: switchTheme}), "◐"),
    h("button.quiet.who", attrs({title: "Account", onclick: showAccount}), me.id),
  );
}

async function search(field, found) {
  const wanted = field.value.trim();
  if (!wanted) return change(found, {hidden: true});
  const {kinds} = await get("kinds");
  const [kind, prefix] = wanted.includes("/")
    ? [wanted.split("/")[0], wanted.slice(wanted.indexOf("/") + 1)]
    : [null, wanted];
  const pages = await Promise.all(
    kinds
      .filter((each) => each.chart && (!kind || each.kind === kind))
      .map((each) => get(`kinds/${encodeURIComponent(each.kind)}/entities?limit=6&q=${encodeURIComponent(prefix)}`)),
  );
  if (field.value.trim() !== wanted) return null;
  const rows = pages.flatMap((each) => each.rows).slice(0, 8);
  const links = rows.map((each) =>
    h(
      "li",
      h(
        "a",
        attrs({href: entityPath(each.entity)}),
        h("span.mono", each.entity),
        h("span.muted", ` ${each.configuration.join(", ")}`),
      ),
    ),
  );
  for (const each of kinds)
    if (each.kind.startsWith(wanted))
      links.push(h("li", h("a", attrs({href: kindPath(each.kind)}), each.kind, h("span.muted", " kind"))));
  fill(found, links.length ? links : h("li.muted", "No matches"));
  return change(found, {hidden: false});
}

function showAccount() {
  dialog(
    `Account: ${me.id}`,
    h("p", "Roles: ", me.roles.join(", ") || "none"),
    h("p", "Rights: ", me.rights.join(", ") || "none"),
    h("footer", h("button", attrs({onclick: signOut, "data-testid": "sign-out"}), "Sign out")),
  );
}

let prefix = "";
addEventListener("keydown", (event) => {
  const typing = event.target.closest && event.target.closest("input, textarea, select, dialog");
  if (event.key === "Escape") document.getElementById("found").hidden = true;
  if (event.metaKey || event.ctrlKey) {
    if (event.key !== "k") return;
  } else if (typing || event.altKey) return;
  const pair = prefix + event.key;
  prefix = event.key === "g" ? "g" : "";
  const pages = {go: "/", ge: "/effects", gs: "/sagas", ga: "/audit", gb: "/bulk", gr: "/reports", gm: "/simulator"};
  if (pages[pair]) go(pages[pair]);
  else if (event.key === "/" || (event.key === "k" && (event.metaKey || event.ctrlKey)))
    document.getElementById("search").focus();
  else if (event.key === "t") switchTheme();
  else if (event.key === "?")
    dialog(
      "Keyboard shortcuts",
      h(
        "dl.keys",
        KEYS.map(([key, what]) => [h("dt", h("kbd", key)), h("dd", what)]),
      ),
    );
  else if (event.key === "j" || event.key === "k") nextRow(event.key === "j" ? 1 : -1);
  else return;
  event.preventDefault();
});

function nextRow(by) {
  const links = [...document.querySelectorAll("main tbody a.mono, main a.row")];
  const at = links.indexOf(document.activeElement);
  const next = links[at < 0 ? 0 : at + by];
  if (next) next.focus();
}

try {
  const stored = localStorage.getItem("theme");
  if (stored === "dark" || stored === "light") document.documentElement.dataset.theme = stored;
} catch {
  /* storage is disabled: the theme lasts as long as this page */
}

try {
  await authenticate();
  showHeader();
  await render();
} catch (problem) {
  fill(document.getElementById("main"), errorCard(problem));
}
