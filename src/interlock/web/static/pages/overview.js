// Overview: a card for each kind.

import {get, live} from "/static/api.js";
import {attrs, fill, h, page} from "/static/dom.js";
import {rate, spark} from "/static/components.js";
import {isEnded, kindPath, quantity, number, revision, short, stateName} from "/static/format.js";

page("/", async (main) => {
  document.title = "Overview · Interlock";
  const head = h("div");
  const cards = h("div.cards");
  async function show() {
    const overview = await get("kinds");
    const total = overview.kinds.reduce((sum, each) => sum + each.entities, 0);
    const stuck = overview.kinds.reduce((sum, each) => sum + each.stuck, 0);
    const isOpen = overview.kinds.some((each) => each.stuck_more);
    fill(
      head,
      h("h1", "Overview"),
      h(
        "p.facts",
        h("span", quantity(total, "entity", "entities")),
        h("span", quantity(overview.kinds.length, "kind")),
        stuck > 0 ? h("span.bad", `⚠ ${number(stuck)}${isOpen ? "+" : ""} stuck`) : h("span.good", "✓ none stuck"),
        overview.interrupted > 0 &&
          h("a.bad", attrs({href: "/bulk"}), `⚠ ${quantity(overview.interrupted, "job")} interrupted`),
        overview.dead > 0 &&
          h("a.bad", attrs({href: "/effects?dead=true"}), `✗ ${quantity(overview.dead, "dead letter")}${overview.dead_more ? "+" : ""}`),
      ),
    );
    fill(
      cards,
      overview.kinds.length
        ? overview.kinds.map((each) => card(each, overview.now_ms))
        : h("p.empty", "No entities yet. Create one: ", h("code", "interlock create")),
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
      h("p.muted", "Chart not loaded. Start the server with ", h("code", "--chart"), " to see its entities."),
    );
  }
  const tops = kind.states.filter((each) => each.depth === 1 && each.entities);
  tops.sort((one, other) => other.entities - one.entities);
  const ended = tops.filter(isEnded);
  const shown = tops.filter((each) => !isEnded(each));
  const sum = Math.max(
    1,
    shown.reduce((all, each) => all + each.entities, 0),
  );
  const bar = h(
    "div.bar",
    attrs({role: "img", "aria-label": shown.map((each) => `${each.id} ${each.entities}`).join(", ") || "no active entities"}),
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
    h("header", h("h2", h("a.row", attrs({href: kindPath(kind.kind)}), kind.kind)), h("span.pill", revision(kind.revision, kind.label))),
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
      shown.length > 5 && h("li.muted", `+ ${quantity(shown.length - 5, "more state")}`),
    ),
    ended.length > 0 &&
      h(
        "p.muted.ended",
        "Ended: ",
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
        h("span.muted", quantity(kind.revisions.filter((each) => each.entities).length, "revision"), " in use"),
    ),
  );
}
