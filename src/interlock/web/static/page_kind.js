// Kind: the drawing with its population; the list of entities; two revisions side by side.

import {get, live, may, post, query} from "/static/api.js";
import {attrs, fill, go, h, keepQuery, later, page} from "/static/elements.js";
import {diagram} from "/static/diagram.js";
import {
  age,
  dialog,
  entityLink,
  more,
  num,
  problemNote,
  rate,
  row,
  schemaForm,
  spark,
  states,
  table,
  time,
} from "/static/parts.js";
import {bound, entityPath, kindPath, many, number, revision, span, stateName} from "/static/words.js";

const base = (kind) => `kinds/${encodeURIComponent(kind)}`;

/** The head of the pages of a kind. */
export function title(kind, here, extra) {
  const tabs = [
    ["", "Overview"],
    ["/entities", "Entities"],
    ["/diff", "Diff"],
    ["/lab", "Lab"],
  ];
  return h(
    "div.title",
    h("h1", h("a.crumb", attrs({href: "/"}), "Fleet"), " / ", kind),
    h(
      "nav.tabs",
      attrs({"aria-label": `Pages of ${kind}`}),
      tabs.map(([rest, name]) =>
        h("a", attrs({href: kindPath(kind, rest), "aria-current": rest === here ? "page" : null}), name),
      ),
    ),
    extra,
  );
}

page("/k/([^/]+)", async (main, [kind]) => {
  document.title = `${kind} · Interlock`;
  let detail = await get(base(kind));
  const picture = await diagram(`${base(kind)}/chart.svg`, {
    label: `Chart of ${kind}`,
    states: detail.kind.states.map((each) => each.id),
    pick: (state) => go(kindPath(kind, `/entities?state=${encodeURIComponent(state)}`)),
  });
  const head = h("div");
  const side = h("div.side");
  function show() {
    const view = detail.kind;
    picture.heat(view.states);
    fill(
      head,
      title(kind, "", may("send") && h("button.primary", attrs({onclick: () => create(kind, detail)}), "New entity")),
      h(
        "p.facts",
        h("span", many(view.entities, "entity", "entities"), view.partial && "+"),
        h("span.pace", spark(view.minutes, detail.now_ms), h("b", rate(view.steps_per_second)), " steps/s"),
        view.stuck > 0
          ? h("span.bad", `⚠ ${number(view.stuck)}${view.stuck_more ? "+" : ""} stuck`)
          : h("span.good", "✓ nothing stuck"),
        h("span.pill", revision(view.revision)),
      ),
    );
    const stuck = view.states.filter((each) => each.stuck);
    fill(
      side,
      h("section.card", h("h2", "Population and dwell"), population(kind, view)),
      h(
        "section.card",
        attrs({id: "stuck"}),
        h("h2", "Stuck now"),
        stuck.length
          ? table(
              "Stuck states",
              ["State", ["Entities", "num"], "Longer than", ""],
              stuck.map((each) =>
                row(
                  each.id,
                  num(`${number(each.stuck)}${each.stuck_more ? "+" : ""}`),
                  bound(each.expect_ms),
                  h(
                    "a",
                    attrs({
                      href: kindPath(
                        kind,
                        `/entities?state=${encodeURIComponent(each.id)}&older=${bound(each.expect_ms)}`,
                      ),
                    }),
                    "show",
                  ),
                ),
              ),
              "",
              "",
            )
          : h("p.empty", "Nobody waits longer than the chart expects."),
      ),
      view.revisions.length > 0 && h("section.card", h("h2", "Revisions"), revisions(kind, view)),
    );
  }
  show();
  const split = h("div.split", h("section.card.picture", attrs({"aria-label": "Diagram"}), picture), side);
  if (picture.isWide) split.classList.add("stacked");
  fill(main, head, split);
  const again = async () => {
    detail = await get(base(kind));
    show();
  };
  live(main, "streams/fleet", {changed: ({kinds}) => kinds.includes(kind) && again()}, again);
});

function population(kind, view) {
  const most = Math.max(1, ...view.states.map((each) => each.entities));
  return table(
    "Entities by state",
    ["State", ["Entities", "num"], ["", "share"], ["p95 stay", "num"], ["Stuck", "num"]],
    view.states.map((each) =>
      h(
        "tr",
        attrs({class: each.entities ? "" : "faint"}),
        h(
          "td",
          h(
            "a",
            attrs({
              href: kindPath(kind, `/entities?state=${encodeURIComponent(each.id)}`),
              title: each.description,
              style: {display: "inline-block", "margin-left": `${(each.depth - 1) * 14}px`},
            }),
            stateName(each)
              .split(/(?<=_)/)
              .map((part) => [part, h("wbr")]),
          ),
        ),
        num(number(each.entities)),
        h("td.share", each.entities > 0 && h("i", attrs({style: {width: `${(100 * each.entities) / most}%`}}))),
        num(each.p95_ms === null ? "—" : `≤ ${bound(each.p95_ms)}`),
        h(
          "td.num",
          attrs({class: each.stuck ? "bad" : "muted"}),
          each.stuck === null ? "" : each.stuck ? `⚠ ${number(each.stuck)}${each.stuck_more ? "+" : ""}` : "0",
        ),
      ),
    ),
    "",
    "",
  );
}

function revisions(kind, view) {
  const all = Math.max(
    1,
    view.revisions.reduce((sum, each) => sum + each.entities, 0),
  );
  const rows = view.revisions.map((each) =>
    row(
      h("span.mono", attrs({title: each.revision}), each.revision),
      num(number(each.entities)),
      h("td.share", each.entities > 0 && h("i", attrs({style: {width: `${(100 * each.entities) / all}%`}}))),
      each.current
        ? h("span.pill.good", "current")
        : each.here
          ? h(
              "a",
              attrs({
                href: kindPath(
                  kind,
                  `/diff?from=${encodeURIComponent(each.revision)}&to=${encodeURIComponent(view.revision)}`,
                ),
              }),
              "diff",
            )
          : h("span.muted", "no chart here"),
    ),
  );
  return table("Entities by revision", ["Revision", ["Entities", "num"], ["", "share"], ""], rows, "", "");
}

function create(kind, detail) {
  const id = h("input", attrs({id: "new-id", required: true, autocomplete: "off", maxlength: 180}));
  const form = schemaForm(detail.context);
  const note = h("div");
  const box = dialog(
    `New ${kind}`,
    h(
      "form",
      attrs({
        onsubmit: async (event) => {
          event.preventDefault();
          try {
            const receipt = await post(`${base(kind)}/entities`, {id: id.value, context: form.value() || {}});
            box.close();
            go(entityPath(receipt.entity));
          } catch (problem) {
            fill(note, problemNote(problem));
          }
        },
      }),
      h("div.field", h("label", attrs({for: "new-id"}), "Id"), id),
      form.node,
      note,
      h("footer", h("button.primary", "Create")),
    ),
  );
  id.focus();
}

// The list

const FILTERS = ["state", "revision", "tag", "older", "error", "q"];

page("/k/([^/]+)/entities", async (main, [kind], given) => {
  document.title = `${kind} entities · Interlock`;
  const detail = await get(base(kind));
  const filter = Object.fromEntries(FILTERS.map((each) => [each, given.get(each) || ""]));
  const body = h("div");
  const patience = new Map(detail.kind.states.map((each) => [each.id, each.expect_ms]));
  const isStuck = ({ended, configuration, entered_ms: since}) =>
    !ended && configuration.some((each) => patience.get(each) && since + patience.get(each) < Date.now());
  let rows = [];
  async function load(after) {
    const found = await get(`${base(kind)}/entities${query({...filter, after})}`);
    rows = after ? [...rows, ...found.rows] : found.rows;
    const empty = found.after
      ? "Nothing among the first few thousand; there may be more behind them."
      : Object.values(filter).some(Boolean)
        ? "Nothing matches."
        : "No entity of this kind yet.";
    fill(
      body,
      table(
        `Entities of ${kind}`,
        ["Entity", "State", ["Here for", "num"], ["Version", "num"], ["Revision", ""], ["Last change", ""]],
        rows.map((each) =>
          row(
            entityLink(each.entity),
            [states(each.configuration), each.ended && h("span.muted", ` ■ ended: ${each.ended}`)],
            h(
              "td.num",
              isStuck(each) && h("span.bad", attrs({title: "Longer than the chart expects"}), "⚠ "),
              age(each.entered_ms),
            ),
            num(each.version),
            h("span.muted", revision(each.revision)),
            time(each.changed_ms),
          ),
        ),
        empty,
      ),
      found.partial && h("p.muted", "The walk stopped at its bound; go on from here."),
      more(found.after, () => load(found.after)),
    );
  }
  const changed = later(200, async () => {
    keepQuery(filter);
    await load(null);
  });
  const input = (name, label, options = {}) => {
    const id = `filter-${name}`;
    const node = options.choices
      ? h(
          "select",
          attrs({id, onchange: set}),
          h("option", attrs({value: ""}), "any"),
          options.choices.map((each) => h("option", attrs({value: each}), each)),
        )
      : h("input", attrs({id, oninput: set, placeholder: options.hint || "", autocomplete: "off", size: options.size || 10}));
    node.value = filter[name];
    function set() {
      filter[name] = node.value.trim();
      changed();
    }
    return h("div.field", h("label", attrs({for: id}), label), node);
  };
  const tags = [...new Set(detail.kind.states.flatMap((each) => each.tags))];
  fill(
    main,
    title(
      kind,
      "/entities",
      may("bulk") && h("button", attrs({onclick: () => go(`/bulk${query({kind, ...filter})}`)}), "Bulk…"),
    ),
    h(
      "form.filters.card",
      attrs({role: "search", "aria-label": "Filters", onsubmit: (event) => event.preventDefault()}),
      input("q", "Id begins with", {size: 14}),
      input("state", "State", {choices: detail.kind.states.map((each) => each.id)}),
      input("older", "Here longer than", {hint: "2h", size: 6}),
      tags.length > 0 && input("tag", "Tag", {choices: tags}),
      input("revision", "Revision", {choices: detail.kind.revisions.map((each) => each.revision)}),
      input("error", "Dead letter of", {hint: "any", size: 12}),
    ),
    h("section.card", body),
  );
  await load(null);
});

// Two revisions

page("/k/([^/]+)/diff", async (main, [kind], given) => {
  document.title = `${kind} diff · Interlock`;
  const {kind: view} = await get(base(kind));
  const here = view.revisions.filter((each) => each.here).map((each) => each.revision);
  const from = given.get("from") || here.find((each) => each !== view.revision) || view.revision;
  const to = given.get("to") || view.revision;
  const choose = (label, chosen, set) => {
    const id = `rev-${label}`;
    const node = h(
      "select",
      attrs({id, onchange: () => set(node.value)}),
      here.map((each) => h("option", attrs({value: each}), each)),
    );
    node.value = chosen;
    return h("div.field", h("label", attrs({for: id}), label), node);
  };
  const jump = (one, other) => go(kindPath(kind, `/diff${query({from: one, to: other})}`));
  const choices = h(
    "form.filters.card",
    choose("From", from, (one) => jump(one, to)),
    choose("To", to, (other) => jump(from, other)),
  );
  if (here.length < 2)
    return fill(
      main,
      title(kind, "/diff"),
      h(
        "section.card",
        h(
          "p.empty",
          "This server knows one revision of this chart. To compare two, start it with both: ",
          h("code", "interlock serve --chart old.yaml --chart new.yaml"),
        ),
      ),
    );
  const asked = query({from, to});
  const [diff, picture] = await Promise.all([
    get(`${base(kind)}/diff${asked}`),
    diagram(`${base(kind)}/diff.svg${asked}`, {label: `What differs between ${from} and ${to}`}),
  ]);
  const signs = {added: "+", removed: "−", changed: "~"};
  const affected =
    diff.affected > 0
      ? h("p.bad", `⚠ ${many(diff.affected, "entity sits", "entities sit")} in a state that ${revision(to)} removes.`)
      : h("p.good", "✓ No entity sits in a state that is removed.");
  return fill(
    main,
    title(kind, "/diff"),
    choices,
    h(
      "div.split",
      h("section.card.picture", attrs({"aria-label": "Diagram of differences"}), picture),
      h(
        "section.card",
        h("h2", diff.same ? "No difference" : many(diff.changes.length, "difference")),
        affected,
        table(
          "Differences",
          ["", "What", "Where", ["Entities", "num"]],
          diff.changes.map((each) =>
            row(
              h("b", attrs({class: `sign-${each.change}`, title: each.change}), signs[each.change]),
              each.what,
              [h("span.mono", each.name), each.detail && h("span.muted", ` ${each.detail}`)],
              num(each.entities ? number(each.entities) : ""),
            ),
          ),
          "Both say the same.",
        ),
      ),
    ),
  );
});
