// Lab: a chart played without a store. What was done is kept in the page; the server plays it anew each time.

import {get, post} from "/static/api.js";
import {attrs, fill, h, page, shown} from "/static/dom.js";
import {asTest} from "/static/export.js";
import {diagram} from "/static/diagram.js";
import {
  contextDiff,
  copy,
  dialog,
  effectName,
  eventList,
  guardNote,
  num,
  problemNote,
  row,
  schemaForm,
  states,
  table,
} from "/static/components.js";
import {title} from "/static/pages/kind.js";
import {kindPath, span} from "/static/format.js";

page("/simulator", async (main) => {
  document.title = "Lab · Interlock";
  const {kinds} = await get("kinds");
  const known = kinds.filter((each) => each.chart);
  fill(
    main,
    h("div.title", h("h1", "Lab")),
    h(
      "section.card",
      h("p.muted", "Play a chart without a store: click events, move the clock, answer effects."),
      table(
        "Charts",
        ["Chart", ["States", "num"], ["Revision", ""]],
        known.map((each) =>
          row(
            h("a.row", attrs({href: kindPath(each.kind, "/simulate")}), each.kind),
            num(each.states.length),
            h("span.mono", each.revision),
          ),
        ),
        "No chart is here.",
        "",
      ),
    ),
  );
});

page("/k/([^/]+)/simulate", async (main, [kind]) => {
  document.title = `${kind} lab · Interlock`;
  const detail = await get(`kinds/${encodeURIComponent(kind)}`);
  const picture = await diagram(`kinds/${encodeURIComponent(kind)}/chart.svg`, {
    label: `Chart of ${kind}`,
    states: detail.kind.states.map((each) => each.id),
  });
  const side = h("div.side");
  const turns = h("section.card");
  let acts = [];
  let context = null;
  let view = null;
  async function play() {
    try {
      view = await post(`kinds/${encodeURIComponent(kind)}/simulate`, {acts, context});
      show();
    } catch (problem) {
      acts = acts.slice(0, -1);
      if (!view) begin(problem);
      else fill(side, problemNote(problem), h("button", attrs({onclick: play}), "Go on"));
    }
  }
  const act = (one) => {
    acts = [...acts, one];
    return play();
  };
  function begin(problem) {
    const form = schemaForm(detail.context);
    fill(
      side,
      h(
        "form.card",
        attrs({
          onsubmit: (event) => {
            event.preventDefault();
            context = form.value();
            acts = [];
            play();
          },
        }),
        h("h2", "Begin with"),
        form.node,
        problem && context && problemNote(problem),
        h("footer", h("button.primary", "Begin")),
      ),
    );
  }
  function give(each) {
    if (!each.payload || !Object.keys(each.payload.properties || {}).length)
      return act({event: each.event, payload: null});
    const form = schemaForm(each.payload);
    const note = h("div");
    const box = dialog(
      each.event,
      h(
        "form",
        attrs({
          onsubmit: (event) => {
            event.preventDefault();
            try {
              const payload = form.value();
              box.close();
              act({event: each.event, payload});
            } catch (problem) {
              fill(note, problemNote(problem));
            }
          },
        }),
        form.node,
        note,
        h("footer", h("button.primary", "Send")),
      ),
    );
    return null;
  }
  function show() {
    const last = view.turns[view.turns.length - 1];
    const before = view.turns.length > 1 ? view.turns[view.turns.length - 2].context : null;
    picture.light({active: view.active, transitions: last.transitions, visited: view.turns.flatMap((each) => each.after)});
    fill(
      side,
      h(
        "section.card",
        h("h2", h("span.now", "● ", view.configuration.join(", ")), h("small.muted", ` at ${span(view.time_ms)}`)),
        view.problem && problemNote({detail: view.problem}),
        last.outcome !== "applied" &&
          h(
            "div.note.bad",
            h("p", h("b", `✗ ${last.event} ${last.outcome}`), last.reason && ` (${last.reason})`),
            last.guards.map(guardNote),
            last.faults.map((each) => h("p", each)),
          ),
        h("h4", "Events"),
        view.ended ? h("p.empty", `It has ended: ${view.ended}.`) : eventList(view.accepted, give),
        view.timers.length > 0 && [
          h("h4", "Timers"),
          h(
            "ul.plain",
            view.timers.map((each) =>
              h(
                "li",
                h(
                  "button.quiet",
                  attrs({onclick: () => act({advance_ms: Math.max(0, each.due_ms - view.time_ms)})}),
                  `▶ ${each.event}`,
                ),
                h("span.muted", ` in ${span(each.due_ms - view.time_ms)}`),
              ),
            ),
          ),
        ],
        view.pending.length > 0 && [
          h("h4", "Effects to answer"),
          h(
            "ul.plain",
            view.pending.map((each) =>
              h(
                "li",
                h("span.kind", each.type),
                " ",
                h("b", each.name || each.type),
                " ",
                h("button.quiet", attrs({onclick: () => answer(each)}), "✓ done"),
                h("button.quiet", attrs({onclick: () => act({failed: each.key})}), "✗ fails"),
              ),
            ),
          ),
        ],
        h("h4", "Context"),
        contextDiff(before, view.context),
        h(
          "footer",
          h(
            "button.quiet",
            attrs({
              disabled: !acts.length,
              onclick: () => {
                acts = acts.slice(0, -1);
                play();
              },
            }),
            "↶ back",
          ),
          h(
            "button.quiet",
            attrs({
              onclick: () => {
                view = null;
                begin();
              },
            }),
            "start again",
          ),
          h("button.quiet", attrs({onclick: () => copy(asTest(kind, `${kind}/lab`, view.turns), "Test")}), "copy as test"),
        ),
      ),
    );
    fill(
      turns,
      h("h2", "What happened"),
      table(
        "Steps",
        [["At", ""], "Event", "Outcome", "From → to", ["Effects", ""]],
        view.turns
          .slice()
          .reverse()
          .map((each) =>
            row(
              span(each.time_ms),
              h("b", each.event),
              each.outcome === "applied" ? "applied" : h("span.bad", `✗ ${each.outcome} ${each.reason || ""}`),
              [states(each.before), " → ", states(each.after)],
              each.effects.map(effectName).join(", "),
            ),
          ),
      ),
    );
  }
  function answer(each) {
    const form = schemaForm(null);
    const box = dialog(
      `Result of ${shown(each.name)}`,
      h(
        "form",
        attrs({
          onsubmit: (event) => {
            event.preventDefault();
            const result = form.value();
            box.close();
            act({done: each.key, result});
          },
        }),
        form.node,
        h("footer", h("button.primary", "Answer")),
      ),
    );
  }
  fill(
    main,
    title(kind, "/simulate"),
    h("div.split", h("section.card.picture", attrs({"aria-label": "Diagram"}), picture), side),
    turns,
  );
  fill(turns, h("h2", "What happened"), h("p.empty", "Nothing yet. What is done here is kept nowhere else."));
  const needs = (detail.context.required || []).length > 0;
  return needs ? begin() : play();
});
