// Effects, dead letters and sagas.

import {get, may, post, query} from "/static/api.js";
import {attrs, fill, h, keepQuery, later, page, toast} from "/static/elements.js";
import {steps} from "/static/page_entity.js";
import {age, confirmed, entityLink, json, more, num, row, table, until} from "/static/parts.js";
import {kindPath} from "/static/words.js";

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
    const found = await get(`works${query({...filter, after})}`);
    rows = after ? [...rows, ...found.rows] : found.rows;
    fill(
      body,
      found.kept
        ? table(
            "Work",
            ["Status", "Lane", "What", "Entity", ["Tries", "num"], "When", "Error", ""],
            rows.map(line),
            filter.dead === "true" ? "No dead letters." : "No effect, timer or message waits here.",
          )
        : h("p.empty", "This store keeps no work: effects are not performed from it."),
      more(found.after, () => load(found.after)),
    );
  }
  const words = {
    dead: ["✗", "bad"],
    retry: ["↻", "warn"],
    running: ["●", "good"],
    expired: ["!", "warn"],
    pending: ["○", "muted"],
    scheduled: ["○", "muted"],
    queued: ["○", "muted"],
    waiting_child: ["○", "muted"],
    cancelled: ["∅", "muted"],
  };
  function line(each) {
    const [sign, tone] = words[each.status];
    const act = (what, label, text) =>
      h(
        "button",
        attrs({
          onclick: () =>
            confirmed(`${label} ${each.name}`, text, label, async (reason) => {
              await post(`works/${what}`, {
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
      h("span", attrs({class: tone}), `${sign} ${each.status.replace("_", " for ")}`),
      h("span.kind", each.lane),
      h("b.mono", each.name),
      entityLink(each.entity),
      num(`${each.attempts}${each.retries ? ` / ${each.retries}` : ""}`),
      each.dead_ms ? ["died ", age(each.dead_ms), " ago"] : each.next_ms ? until(each.next_ms) : "—",
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
          act("retry", "Retry", "It is tried again under its key, from its first attempt."),
        may("operate") && each.status === "dead" && act("drop", "Drop", "Its entity will never hear of it."),
      ),
    );
  }
  const changed = later(200, async () => {
    keepQuery(filter);
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
      choice("dead", "Show", [
        ["", "all"],
        ["true", "dead letters"],
        ["false", "living"],
      ]),
      choice("lane", "Lane", [
        ["", "any"],
        ["effect", "effect"],
        ["timer", "timer"],
        ["outbox", "outbox"],
        ["message", "message"],
      ]),
      typed("name", "Name"),
      typed("entity", "Entity"),
    ),
    h("section.card", body),
  );
  await load(null);
});

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
            plans(each),
            each.more &&
              h(
                "p.more",
                h("a", attrs({href: kindPath(each.kind, `/entities?state=${encodeURIComponent(each.state)}`)}), "All of them"),
              ),
          ),
        )
      : h("section.card", h("p.empty", "No chart here has a saga.")),
  );
});

/** Those in a saga, and how far each has come; first those that do not go forward. */
function plans({state, entities}) {
  const listed = entities
    .map((each) => [each, each.sagas.find((saga) => saga.state === state)])
    .filter(([, saga]) => saga)
    .sort(([, one], [, other]) => PHASES.indexOf(one.phase) - PHASES.indexOf(other.phase))
    .map(([each, saga]) =>
      row(
        entityLink(each.entity),
        h("span.pill", attrs({class: saga.phase === "forward" ? "good" : "bad"}), saga.phase),
        num(age(each.entered_ms)),
        steps(saga),
      ),
    );
  return table(`In ${state}`, ["Entity", "Phase", ["In it for", "num"], "Steps"], listed, "Nobody is in it.");
}
