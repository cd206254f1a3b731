// Fleet: a card for each kind.

import {get, live} from "/static/api.js";
import {attrs, fill, h, page} from "/static/elements.js";
import {rate, spark} from "/static/parts.js";
import {isOver, kindPath, many, number, revision, short, stateName} from "/static/words.js";

page("/", async (main) => {
  document.title = "Fleet · Interlock";
  const head = h("div");
  const cards = h("div.cards");
  async function show() {
    const fleet = await get("kinds");
    const total = fleet.kinds.reduce((sum, each) => sum + each.entities, 0);
    const stuck = fleet.kinds.reduce((sum, each) => sum + each.stuck, 0);
    const open = fleet.kinds.some((each) => each.stuck_more);
    fill(
      head,
      h("h1", "Fleet"),
      h(
        "p.facts",
        h("span", many(total, "entity", "entities")),
        h("span", many(fleet.kinds.length, "kind")),
        stuck > 0 ? h("span.bad", `⚠ ${number(stuck)}${open ? "+" : ""} stuck`) : h("span.good", "✓ nothing stuck"),
        fleet.interrupted > 0 &&
          h("a.bad", attrs({href: "/bulk"}), `⚠ ${many(fleet.interrupted, "job")} interrupted`),
        fleet.dead > 0 &&
          h("a.bad", attrs({href: "/effects?dead=true"}), `✗ ${many(fleet.dead, "dead letter")}${fleet.dead_more ? "+" : ""}`),
      ),
    );
    fill(
      cards,
      fleet.kinds.length
        ? fleet.kinds.map((each) => card(each, fleet.now_ms))
        : h("p.empty", "No chart and no entity. Start with: interlock create"),
    );
  }
  await show();
  fill(main, head, cards);
  live(main, "streams/fleet", {changed: show}, show);
});

function card(kind, nowMs) {
  if (!kind.chart) {
    return h(
      "section.card.kind",
      h("h2", kind.kind),
      h("p.muted", "There are entities, but this server has no chart of them. Start it with --chart."),
    );
  }
  const tops = kind.states.filter((each) => each.depth === 1 && each.entities);
  tops.sort((one, other) => other.entities - one.entities);
  const ended = tops.filter(isOver);
  const shown = tops.filter((each) => !isOver(each));
  const sum = Math.max(
    1,
    shown.reduce((all, each) => all + each.entities, 0),
  );
  const bar = h(
    "div.bar",
    attrs({role: "img", "aria-label": shown.map((each) => `${each.id} ${each.entities}`).join(", ") || "nobody"}),
    shown.map((each, at) =>
      h("i", attrs({
        class: `tone-${at % 8}`,
        style: {"flex-grow": String(Math.max(each.entities / sum, 0.012))},
        title: `${each.id}: ${number(each.entities)}`,
      })),
    ),
  );
  return h(
    "section.card.kind",
    attrs({"aria-label": kind.kind}),
    h("header", h("h2", h("a.row", attrs({href: kindPath(kind.kind)}), kind.kind)), h("span.pill", revision(kind.revision))),
    h(
      "p.big",
      `${number(kind.entities)}${kind.partial ? "+" : ""}`,
      h("small", kind.entities === 1 ? " entity" : " entities"),
      kind.stuck > 0 &&
        h(
          "a.bad",
          attrs({href: kindPath(kind.kind, "#stuck")}),
          ` ⚠ ${number(kind.stuck)}${kind.stuck_more ? "+" : ""} stuck`,
        ),
    ),
    bar,
    h(
      "ul.legend",
      shown
        .slice(0, 5)
        .map((each, at) =>
          h(
            "li",
            h(
              "a",
              attrs({href: kindPath(kind.kind, `/entities?state=${encodeURIComponent(each.id)}`)}),
              h("i", attrs({class: `tone-${at % 8}`})),
              each.id,
              h("b", short(each.entities)),
            ),
          ),
        ),
      shown.length > 5 && h("li.muted", `and ${many(shown.length - 5, "other state")}`),
    ),
    ended.length > 0 &&
      h(
        "p.muted.ended",
        "ended: ",
        ended.map((each, at) => [
          at > 0 && ", ",
          h(
            "a",
            attrs({href: kindPath(kind.kind, `/entities?state=${encodeURIComponent(each.id)}`)}),
            stateName(each),
            " ",
            short(each.entities),
          ),
        ]),
      ),
    h(
      "footer",
      spark(kind.minutes, nowMs),
      h("span.muted", h("b", rate(kind.steps_per_second)), " steps/s"),
      kind.revisions.filter((each) => each.entities).length > 1 &&
        h("span.muted", many(kind.revisions.filter((each) => each.entities).length, "revision"), " live"),
    ),
  );
}
