// Kind: the diagram with its population; the list of entities; two revisions compared.

import {get, live, may, post, query} from "/static/api.js";
import {attrs, fill, go, h, updateQuery, debounce, page} from "/static/dom.js";
import {diagram} from "/static/diagram.js";
import {
  age,
  breakable,
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
} from "/static/components.js";
import {duration, entityPath, kindPath, limit, number, quantity, revision, stateName} from "/static/format.js";

const base = (kind) => `kinds/${encodeURIComponent(kind)}`;

/** The heading of the pages of a kind. */
export function title(kind, current, extra) {
  const tabs = [
    ["", "Summary"],
    ["/entities", "Entities"],
    ["/diff", "Compare revisions"],
    ["/simulate", "Simulator"],
  ];
  return h(
    "div.title",
    h("h1", h("a.crumb", attrs({href: "/"}), "Overview"), " / ", kind),
    h(
      "nav.tabs",
      attrs({"aria-label": `Pages of ${kind}`}),
      tabs.map(([rest, name]) =>
        h("a", attrs({href: kindPath(kind, rest), "aria-current": rest === current ? "page" : null}), name),
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
    picture.showPopulation(view.states);
    fill(
      head,
      title(kind, "", may("send") && h("button.primary", attrs({onclick: () => create(kind, detail)}), "New entity")),
      h(
        "p.facts",
        h("span", quantity(view.entities, "entity", "entities"), view.partial && "+"),
        h("span.pace", spark(view.minutes, detail.now_ms), h("b", rate(view.steps_per_second)), " steps/s"),
        view.stuck > 0
          ? h("span.bad", `⚠ ${number(view.stuck)}${view.stuck_more ? "+" : ""} stuck`)
          : h("span.good", "✓ none stuck"),
        h("span.pill", revision(view.revision, view.label)),
      ),
    );
    const stuck = view.states.filter((each) => each.stuck);
    fill(
      side,
      h("section.card", h("h2", "Entities by state"), population(kind, view)),
      h(
        "section.card",
        attrs({id: "stuck"}),
        h("h2", "Stuck"),
        stuck.length
          ? table(
              "Stuck states",
              ["State", ["Entities", "num"], "Longer than", ""],
              stuck.map((each) =>
                row(
                  breakable(each.id),
                  num(`${number(each.stuck)}${each.stuck_more ? "+" : ""}`),
                  limit(each.expect_ms),
                  h(
                    "a",
                    attrs({
                      href: kindPath(
                        kind,
                        `/entities?state=${encodeURIComponent(each.id)}&older=${limit(each.expect_ms)}`,
                      ),
                    }),
                    "Show",
                  ),
                ),
              ),
              "",
              "",
            )
          : h("p.empty", "No stuck entities"),
      ),
      view.revisions.length > 0 && h("section.card", h("h2", "Revisions"), rollout(detail.rollout), revisions(kind, view)),
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
    ["State", ["Entities", "num"], ["", "share"], ["p50", "num"], ["p95", "num"], ["p99", "num"], ["p99.9", "num"], ["Stuck", "num"]],
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
            breakable(stateName(each)),
          ),
        ),
        num(number(each.entities)),
        h("td.share", each.entities > 0 && h("i", attrs({style: {width: `${(100 * each.entities) / most}%`}}))),
        ...[each.p50_ms, each.p95_ms, each.p99_ms, each.p999_ms].map((ms) => num(ms === null ? "—" : `≈ ${duration(ms)}`)),
        h(
          "td.num",
          attrs({class: each.stuck ? "bad" : "muted"}),
          each.stuck === null ? "" : each.stuck ? `⚠ ${number(each.stuck)}${each.stuck_more ? "+" : ""}` : "0",
        ),
      ),
    ),
    "",
    "population",
  );
}

/** One line about the rollout of a kind; nothing without one. */
function rollout(found) {
  if (!found) return "";
  const why = found.why ? ` (${found.why})` : "";
  const text = {
    active: `${found.percent} % of new entities start on ${found.revision}, all others on ${found.base}`,
    complete: `New entities start on ${found.revision}`,
    aborted: `Rollout of ${found.revision} aborted; new entities start on ${found.base}`,
  };
  return h(found.state === "aborted" ? "p.bad" : "p.muted", text[found.state] + why);
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
        : each.chart_loaded
          ? h(
              "a",
              attrs({
                href: kindPath(
                  kind,
                  `/diff?from=${encodeURIComponent(each.revision)}&to=${encodeURIComponent(view.revision)}`,
                ),
              }),
              "Compare",
            )
          : h("span.muted", "chart not loaded"),
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

/** An example of a condition on an indexed field. */
const hint = ([{field, form}]) => `${field}${{string: "=text", boolean: "=true"}[form] || ">=…"}`;

const FILTERS = ["state", "revision", "tag", "older", "error", "q", "where"];

page("/k/([^/]+)/entities", async (main, [kind], given) => {
  document.title = `${kind} entities · Interlock`;
  const detail = await get(base(kind));
  const filter = Object.fromEntries(FILTERS.map((each) => [each, given.get(each) || ""]));
  const body = h("div");
  const expected = new Map(detail.kind.states.map((each) => [each.id, each.expect_ms]));
  const isStuck = ({ended, configuration, entered_ms: since}) =>
    !ended && configuration.some((each) => expected.get(each) && since + expected.get(each) < Date.now());
  let rows = [];
  async function load(after) {
    const found = await get(`${base(kind)}/entities${query({...filter, after})}`);
    rows = after ? [...rows, ...found.rows] : found.rows;
    const empty = found.after
      ? "No match among the first few thousand entities. Load more to continue the search."
      : Object.values(filter).some(Boolean)
        ? "No matching entities"
        : "No entities of this kind yet";
    fill(
      body,
      table(
        `Entities of ${kind}`,
        ["Entity", "State", ["In state for", "num"], ["Version", "num"], ["Revision", ""], ["Last change", ""]],
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
      found.partial && h("p.muted", "Scan limit reached; load more to continue."),
      more(found.after, () => load(found.after)),
    );
  }
  const changed = debounce(200, async () => {
    updateQuery(filter);
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
      may("bulk") && h("button", attrs({onclick: () => go(`/bulk${query({kind, ...filter})}`)}), "Bulk send…"),
    ),
    h(
      "form.filters.card",
      attrs({role: "search", "aria-label": "Filters", onsubmit: (event) => event.preventDefault()}),
      input("q", "Id prefix", {size: 14}),
      input("state", "State", {choices: detail.kind.states.map((each) => each.id)}),
      input("older", "In state longer than", {hint: "2h", size: 6}),
      tags.length > 0 && input("tag", "Tag", {choices: tags}),
      input("revision", "Revision", {choices: detail.kind.revisions.map((each) => each.revision)}),
      detail.indexes.length > 0 && input("where", "Fields", {hint: hint(detail.indexes), size: 24}),
      input("error", "Dead letters of handler", {hint: "any", size: 12}),
    ),
    h("section.card", body),
  );
  await load(null);
});

// Two revisions

page("/k/([^/]+)/diff", async (main, [kind], given) => {
  document.title = `${kind} revisions · Interlock`;
  const {kind: view} = await get(base(kind));
  const loaded = view.revisions.filter((each) => each.chart_loaded).map((each) => each.revision);
  const from = given.get("from") || loaded.find((each) => each !== view.revision) || view.revision;
  const to = given.get("to") || view.revision;
  const choose = (label, chosen, set) => {
    const id = `rev-${label}`;
    const node = h(
      "select",
      attrs({id, onchange: () => set(node.value)}),
      loaded.map((each) => h("option", attrs({value: each}), each)),
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
  if (loaded.length < 2)
    return fill(
      main,
      title(kind, "/diff"),
      h(
        "section.card",
        h(
          "p.empty",
          "Only one revision is loaded. To compare two, start the server with both: ",
          h("code", "interlock serve --chart old.yaml --chart new.yaml"),
        ),
      ),
    );
  const compared = query({from, to});
  const [diff, picture] = await Promise.all([
    get(`${base(kind)}/diff${compared}`),
    diagram(`${base(kind)}/diff.svg${compared}`, {label: `Differences between ${from} and ${to}`}),
  ]);
  const signs = {added: "+", removed: "−", changed: "~"};
  const affected =
    diff.affected > 0
      ? h("p.bad", `⚠ ${quantity(diff.affected, "entity is", "entities are")} in states removed by ${revision(to)}`)
      : h("p.good", "✓ No entities in removed states");
  return fill(
    main,
    title(kind, "/diff"),
    choices,
    h(
      "div.split",
      h("section.card.picture", attrs({"aria-label": "Diagram of the differences"}), picture),
      h(
        "section.card",
        h("h2", diff.same ? "No differences" : quantity(diff.changes.length, "difference")),
        affected,
        table(
          "Differences",
          ["", "Part", "Name", ["Entities", "num"]],
          diff.changes.map((each) =>
            row(
              h("b", attrs({class: `sign-${each.change}`, title: each.change}), signs[each.change]),
              each.what,
              [h("span.mono", each.name), each.detail && h("span.muted", ` ${each.detail}`)],
              num(each.entities ? number(each.entities) : ""),
            ),
          ),
          "No differences",
        ),
      ),
    ),
  );
});
