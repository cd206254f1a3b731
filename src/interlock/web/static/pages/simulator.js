// Simulator: a chart without a store. The page stores the acts; the server repeats the simulation each time.

import {get, post} from "/static/api.js";
import {asText, attrs, fill, h, page} from "/static/dom.js";
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
import {duration, kindPath} from "/static/format.js";

page("/simulator", async (main) => {
  document.title = "Simulator · Interlock";
  const {kinds} = await get("kinds");
  const known = kinds.filter((each) => each.chart);
  fill(
    main,
    h("div.title", h("h1", "Simulator")),
    h(
      "section.card",
      h("p.muted", "Simulate a chart without a store: send events, advance the clock, complete effects."),
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
        "No charts loaded",
        "",
      ),
    ),
  );
});

page("/k/([^/]+)/simulate", async (main, [kind]) => {
  document.title = `${kind} simulator · Interlock`;
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
  async function simulate() {
    try {
      view = await post(`kinds/${encodeURIComponent(kind)}/simulate`, {acts, context});
      show();
    } catch (problem) {
      acts = acts.slice(0, -1);
      if (!view) askForContext(problem);
      else fill(side, problemNote(problem), h("button", attrs({onclick: simulate}), "Continue"));
    }
  }
  const act = (one) => {
    acts = [...acts, one];
    return simulate();
  };
  function askForContext(problem) {
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
            simulate();
          },
        }),
        h("h2", "Initial context"),
        form.node,
        problem && context && problemNote(problem),
        h("footer", h("button.primary", attrs({"data-testid": "start"}), "Start")),
      ),
    );
  }
  function send(each) {
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
    picture.highlight({active: view.active, transitions: last.transitions, visited: view.turns.flatMap((each) => each.after)});
    fill(
      side,
      h(
        "section.card",
        h("h2", h("span.now", "● ", view.configuration.join(", ")), h("small.muted", ` at ${duration(view.time_ms)}`)),
        view.problem && problemNote({detail: view.problem}),
        last.outcome !== "applied" &&
          h(
            "div.note.bad",
            h("p", h("b", `✗ ${last.event} ${last.outcome}`), last.reason && ` (${last.reason})`),
            last.guards.map(guardNote),
            last.faults.map((each) => h("p", each)),
          ),
        h("h4", "Events"),
        view.ended ? h("p.empty", `Ended: ${view.ended}`) : eventList(view.accepted, send),
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
                h("span.muted", ` in ${duration(each.due_ms - view.time_ms)}`),
              ),
            ),
          ),
        ],
        view.pending.length > 0 && [
          h("h4", "Pending effects"),
          h(
            "ul.plain",
            view.pending.map((each) =>
              h(
                "li",
                h("span.kind", each.type),
                " ",
                h("b", each.name || each.type),
                " ",
                h("button.quiet", attrs({onclick: () => complete(each)}), "✓ Complete"),
                h("button.quiet", attrs({onclick: () => act({failed: each.key})}), "✗ Fail"),
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
              "data-testid": "undo",
              disabled: !acts.length,
              onclick: () => {
                acts = acts.slice(0, -1);
                simulate();
              },
            }),
            "↶ Undo",
          ),
          h(
            "button.quiet",
            attrs({
              onclick: () => {
                view = null;
                askForContext();
              },
            }),
            "Start again",
          ),
          h("button.quiet", attrs({onclick: () => copy(asTest({...view, entity: `${kind}/lab`}, view.turns), "Test")}), "Copy as test"),
        ),
      ),
    );
    fill(
      turns,
      h("h2", "Steps"),
      table(
        "Steps",
        [["At", ""], "Event", "Outcome", "From → to", ["Effects", ""]],
        view.turns
          .slice()
          .reverse()
          .map((each) =>
            row(
              duration(each.time_ms),
              h("b", each.event),
              each.outcome === "applied" ? "applied" : h("span.bad", `✗ ${each.outcome} ${each.reason || ""}`),
              [states(each.before), " → ", states(each.after)],
              each.effects.map(effectName).join(", "),
            ),
          ),
      ),
    );
  }
  function complete(each) {
    const form = schemaForm(null);
    const box = dialog(
      `Result of ${asText(each.name)}`,
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
        h("footer", h("button.primary", "Complete")),
      ),
    );
  }
  fill(
    main,
    title(kind, "/simulate"),
    h(picture.isWide ? "div.split.stacked.short" : "div.split", h("section.card.picture", attrs({"aria-label": "Diagram"}), picture), side),
    turns,
  );
  fill(turns, h("h2", "Steps"), h("p.empty", "No steps yet. Nothing is saved."));
  const needs = (detail.context.required || []).length > 0;
  return needs ? askForContext() : simulate();
});
