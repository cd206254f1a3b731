// Effects, dead letters and sagas.

import {get, may, post, query} from "/static/api.js";
import {attrs, fill, h, updateQuery, debounce, page, toast} from "/static/dom.js";
import {SAGA_PHASES, WORK_STATUSES, age, confirmDialog, entityLink, json, more, num, row, sagaSteps, table, until} from "/static/components.js";
import {kindPath} from "/static/format.js";

page("/effects", async (main, _, given) => {
  document.title = "Effects · Interlock";
  const filter = {
    lane: given.get("lane") || "",
    dead: given.get("dead") || "",
    name: given.get("name") || "",
    entity: given.get("entity") || "",
  };
  const body = h("div");
  let rows = [];
  async function load(after) {
    const found = await get(`work${query({...filter, after})}`);
    rows = after ? [...rows, ...found.rows] : found.rows;
    fill(
      body,
      found.supported
        ? table(
            "Work",
            ["Status", "Type", "Handler", "Entity", ["Attempts", "num"], "Time", "Error", ""],
            rows.map(line),
            filter.dead === "true" ? "No dead letters" : "No pending work",
          )
        : h("p.empty", "This store does not run effects"),
      more(found.after, () => load(found.after)),
    );
  }
  function line(each) {
    const [sign, text, tone] = WORK_STATUSES[each.status];
    const act = (what, label, explanation) =>
      h(
        "button",
        attrs({
          onclick: () =>
            confirmDialog(`${label} ${each.name}`, explanation, label, async (reason) => {
              await post(`work/${what}`, {
                entity: each.entity,
                lane: each.lane,
                version: each.version,
                ordinal: each.ordinal,
                reason,
              });
              toast(`✓ ${label}: ${each.name}`, "good");
              await load(null);
            }),
        }),
        label,
      );
    return row(
      h("span", attrs({class: tone}), `${sign} ${text}`),
      h("span.kind", each.lane),
      h("b.mono", each.name),
      entityLink(each.entity),
      num(`${each.attempts}${each.retries ? ` / ${each.retries}` : ""}`),
      each.dead_ms ? ["failed ", age(each.dead_ms), " ago"] : each.next_ms ? until(each.next_ms) : "—",
      each.error === null
        ? ""
        : h(
            "details",
            h("summary", (each.error && (each.error.code || each.error.message)) || "error"),
            json(each.error),
          ),
      h(
        "td.acts",
        may("operate") &&
          each.status === "dead" &&
          act("retry", "Retry", "Retries with the same key, from the first attempt."),
        may("operate") && each.status === "dead" && act("drop", "Drop", "The entity gets no result."),
      ),
    );
  }
  const changed = debounce(200, async () => {
    updateQuery(filter);
    await load(null);
  });
  const choice = (name, label, choices) => {
    const node = h(
      "select",
      attrs({
        id: `work-${name}`,
        onchange: () => {
          filter[name] = node.value;
          changed();
        },
      }),
      choices.map(([value, word]) => h("option", attrs({value}), word)),
    );
    node.value = filter[name];
    return h("div.field", h("label", attrs({for: `work-${name}`}), label), node);
  };
  const typed = (name, label) => {
    const node = h("input", attrs({
      id: `work-${name}`,
      value: filter[name],
      autocomplete: "off",
      oninput: () => {
        filter[name] = node.value.trim();
        if (name !== "entity" || !filter.entity || /.\/./.test(filter.entity)) changed();
      },
    }));
    return h("div.field", h("label", attrs({for: `work-${name}`}), label), node);
  };
  fill(
    main,
    h("div.title", h("h1", "Effects and dead letters")),
    h(
      "form.filters.card",
      attrs({role: "search", "aria-label": "Filters", onsubmit: (event) => event.preventDefault()}),
      choice("dead", "Status", [
        ["", "any"],
        ["true", "dead letters"],
        ["false", "active"],
      ]),
      choice("lane", "Type", [
        ["", "any"],
        ["effect", "effect"],
        ["timer", "timer"],
        ["outbox", "outbox"],
        ["message", "message"],
      ]),
      typed("name", "Handler"),
      typed("entity", "Entity"),
    ),
    h("section.card", body),
  );
  await load(null);
});

/** Phases in the order of the table. */
const PHASES = ["blocked", "compensation", "forward"];

page("/sagas", async (main) => {
  document.title = "Sagas · Interlock";
  const found = await get("sagas");
  fill(
    main,
    h("div.title", h("h1", "Sagas")),
    found.sagas.length
      ? found.sagas.map((each) =>
          h(
            "section.card",
            h(
              "h2",
              h("a", attrs({href: kindPath(each.kind)}), each.kind),
              ` / ${each.state} `,
              h("small.muted", each.steps.join(" → ")),
            ),
            sagaTable(each),
            each.more &&
              h(
                "p.more",
                h("a", attrs({href: kindPath(each.kind, `/entities?state=${encodeURIComponent(each.state)}`)}), "Show all"),
              ),
          ),
        )
      : h("section.card", h("p.empty", "No sagas defined")),
  );
});

/** The entities in a saga with their steps, compensating and blocked ones first. */
function sagaTable({state, entities}) {
  const listed = entities
    .map((each) => [each, each.sagas.find((saga) => saga.state === state)])
    .filter(([, saga]) => saga)
    .sort(([, one], [, other]) => PHASES.indexOf(one.phase) - PHASES.indexOf(other.phase))
    .map(([each, saga]) =>
      row(
        entityLink(each.entity),
        h("span.pill", attrs({class: saga.phase === "forward" ? "good" : "bad"}), SAGA_PHASES[saga.phase]),
        num(age(each.entered_ms)),
        sagaSteps(saga),
      ),
    );
  return table(`Entities in ${state}`, ["Entity", "Phase", ["Duration", "num"], "Steps"], listed, "No active sagas");
}
