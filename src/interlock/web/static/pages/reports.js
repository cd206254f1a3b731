// Reports of shadow runs, shadow replays and refolds: the list, and one report with its groups, samples and verdict.

import {get} from "/static/api.js";
import {attrs, fill, h, onLeave, page} from "/static/dom.js";
import {age, entityLink, foldedList, num, row, states, table, time} from "/static/components.js";
import {duration, kindPath, lookup, number, quantity, revision} from "/static/format.js";

const WHAT = {"shadow.run": "shadow run", "shadow.replay": "shadow replay", refold: "refold"};
const VERDICTS = {
  none: ["✓", "no difference", "good"],
  divergent: ["✗", "steps differ", "bad"],
  unknown: ["○", "no verdict", "warn"],
  equal: ["✓", "nothing differs", "good"],
  different: ["✗", "entities differ", "bad"],
  incomplete: ["○", "incomplete", "warn"],
};
const REFRESH_MS = 5000;

const verdict = (each) => {
  const [sign, text, tone] = lookup(VERDICTS, each.verdict) || ["○", each.verdict, "warn"];
  return h("span", attrs({class: tone, "data-testid": "verdict"}), `${sign} ${text}`);
};
const differing = (each) =>
  each.what === "refold"
    ? `${number(each.differing)} of ${quantity(each.compared, "entity", "entities")}`
    : `${number(each.differing)} of ${quantity(each.compared, "entry", "entries")}`;

page("/reports", async (main) => {
  document.title = "Reports · Interlock";
  const {reports} = await get("reports");
  fill(
    main,
    h("div.title", h("h1", "Reports")),
    h(
      "section.card",
      h("p.muted", "What new charts would do with the events of this store, and what corrected charts would have done."),
      table(
        "Reports",
        ["Verdict", "Report", "Kind", "Chart", ["Differing", "num"], "Saved", "By"],
        reports.map((each) =>
          row(
            verdict(each),
            h("a.row", attrs({href: `/reports/${encodeURIComponent(each.id)}`}), lookup(WHAT, each.what) || each.what, each.running && h("span.pill.good", "running")),
            h("a", attrs({href: kindPath(each.kind)}), each.kind),
            h("code", attrs({title: each.revision}), revision(each.revision, each.label)),
            num(differing(each)),
            [age(each.saved_ms), " ago"],
            each.who,
          ),
        ),
        "No reports. Save one with interlock shadow replay --save, interlock shadow run, runtime.shadow or interlock refold --save",
      ),
    ),
  );
});

page("/reports/([^/]+)", async (main, [name]) => {
  let again = null;
  onLeave(main, () => clearTimeout(again));
  async function show() {
    const found = await get(`reports/${encodeURIComponent(name)}`);
    const {row: each, report} = found;
    document.title = `${lookup(WHAT, each.what) || each.what} of ${each.kind} · Interlock`;
    fill(
      main,
      h(
        "div.title",
        h(
          "h1",
          h("a.crumb", attrs({href: "/reports"}), "Reports"),
          " / ",
          h("a.crumb", attrs({href: kindPath(each.kind)}), each.kind),
          " / ",
          lookup(WHAT, each.what) || each.what,
        ),
        each.running && h("span.pill.good", "running"),
      ),
      h("section.card", h("h2", verdict(each), " ", h("span.muted", reason(each, report))), facts(each, report)),
      groups(each, report),
      gaps(each, report),
      each.what !== "refold" && evidence(report.evidence),
    );
    if (each.running) again = setTimeout(() => show().catch(() => null), REFRESH_MS);
  }
  await show();
});

function reason(each, report) {
  if (each.what === "refold") {
    const parts = [`${number(report.same)} equal`];
    if (report.corrected) parts.push(`${number(report.corrected)} corrected`);
    if (report.correctable) parts.push(`${number(report.correctable)} can be corrected`);
    if (report.blocked) parts.push(`${number(report.blocked)} need attention`);
    return parts.join(", ");
  }
  if (report.verdict === "divergent") return `${differing(each)}`;
  if (report.verdict === "none") return "";
  if (!report.evidence.entries) return "no entry was compared";
  if (report.gaps.length) return "some entries were not compared";
  return "the window does not cover a completed life";
}

function facts(each, report) {
  const shown = [
    ["Chart", [h("code", attrs({title: each.revision}), revision(each.revision, each.label))]],
    ["By", each.who],
    ["Started", time(each.began_ms)],
    ["Saved", time(each.saved_ms)],
  ];
  if (each.what === "refold") shown.push(["Read", `${quantity(report.entities, "entity", "entities")}, ${quantity(report.entries, "entry", "entries")}`]);
  return h("div.facts", shown.map(([label, value]) => h("span", `${label} `, h("b", value))));
}

/** One difference: `context.total: 5 -> -5` as its part, the recorded value and the new one. */
function difference(text) {
  const at = text.indexOf(": ");
  const arrow = text.indexOf(" -> ", at);
  if (at < 0 || arrow < 0) return h("li.mono", text);
  return h(
    "li.mono",
    h("span.muted", `${text.slice(0, at)}  `),
    h("del.before", text.slice(at + 2, arrow)),
    " → ",
    h("ins.after", text.slice(arrow + 4)),
  );
}

function groups(each, report) {
  const isRefold = each.what === "refold";
  const heads = isRefold
    ? [["Entities", "num"], "Answer", "State", ["First at", ""], "Differs"]
    : [["Entries", "num"], "Event", "State", "Recorded → new", "Differs"];
  const rows = report.groups.map((group) =>
    row(
      num(number(group.count)),
      ...(isRefold ? refoldCells(group, report) : shadowCells(group)),
      h("td.samples", h("div", group.parts.map((part) => h("code.part", part))), samples(group)),
    ),
  );
  return h(
    "section.card",
    h("h2", "Groups"),
    table("Groups", heads, rows, "No differences"),
    report.other > 0 && h("p.muted", `${number(report.other)} more in no group that was saved`),
  );
}

function shadowCells(group) {
  return [
    h("b", group.event),
    states(group.state),
    [states(group.recorded), " → ", group.new === null ? h("span.bad", "no step") : states(group.new)],
  ];
}

function refoldCells(group, report) {
  const done = report.corrected ? "corrected" : "can be corrected";
  return [
    group.reasons.length
      ? [h("span.warn", "needs attention"), h("ul.plain", group.reasons.map((each) => h("li.muted", each)))]
      : h("span.good", done),
    states(group.state),
    group.event === null ? "" : h("b", group.event),
  ];
}

function samples(group) {
  return h(
    "details",
    attrs({open: true}),
    h("summary", quantity(group.samples.length, "sample")),
    group.samples.map((each) =>
      h("div.sample", entityLink(each.entity), h("span.muted", ` version ${each.version}`), h("ul.plain", each.differences.map(difference))),
    ),
  );
}

function gaps(each, report) {
  if (!report.gaps.length) return null;
  const rows = report.gaps.map((gap) =>
    row(num(number(gap.count)), h("code", gap.code), gap.entity.includes("/") ? entityLink(gap.entity) : "", gap.text),
  );
  const title = each.what === "refold" ? "Not folded" : "Not compared";
  return h("section.card", h("h2", title), table(title, [["Count", "num"], "Code", "First", "Why"], rows));
}

function evidence(found) {
  const never = (names, one) => names.length > 0 && h("div", h("h4", one), foldedList(names.map((each) => h("li.mono", each)), "name"));
  const taken = found.transitions - found.never_taken.length;
  const seen = found.events_seen.length;
  const longest = found.longest_ms === null ? "no life was completed" : `the longest completed life ${duration(found.longest_ms)}`;
  return h(
    "section.card",
    h("h2", "Evidence"),
    h(
      "div.facts",
      h("span", "Compared ", h("b", `${quantity(found.entries, "entry", "entries")} of ${quantity(found.entities, "entity", "entities")}`)),
      found.declares_events && h("span", "Events ", h("b", `${number(seen)} of ${number(seen + found.events_missing.length)}`)),
      h("span", "Transitions ", h("b", `${number(taken)} of ${number(found.transitions)}`)),
      h("span", "Window ", h("b", duration(found.window_ms)), `, ${longest}`),
    ),
    never(found.events_missing, "Events that never came"),
    never(found.never_taken, "Transitions of the new chart that were never taken"),
    never(found.fields_ignored, "Fields that only one chart has; not compared"),
  );
}
