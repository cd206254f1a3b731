// Bulk: one event for every entity of a filter. A dry run first, always.

import {get, may, post} from "/static/api.js";
import {change, fill, h, onLeave, page} from "/static/elements.js";
import {entityLink, num, problemNote, row, schemaForm, states, table} from "/static/parts.js";
import {clock, many, number} from "/static/words.js";

/** Entities of a report that are shown unfolded. */
const SAMPLES = 10;

const FILTERS = [
  ["state", "State"],
  ["revision", "Revision"],
  ["tag", "Tag"],
  ["older", "Here longer than"],
  ["q", "Id begins with"],
];

page("/bulk", async (main, _, given) => {
  document.title = "Bulk · Interlock";
  const {kinds} = await get("kinds");
  const known = kinds.filter((each) => each.chart).map((each) => each.kind);
  if (!known.length) return fill(main, h("section.card", h("p.empty", "No chart is here.")));
  const kind = h(
    "select",
    {id: "bulk-kind", onchange: events},
    known.map((each) => h("option", {value: each}, each)),
  );
  if (known.includes(given.get("kind"))) kind.value = given.get("kind");
  const event = h("select", {id: "bulk-event", onchange: payload});
  const filters = Object.fromEntries(
    FILTERS.map(([name]) => [
      name,
      h("input", {id: `bulk-${name}`, value: given.get(name) || "", autocomplete: "off", size: 12}),
    ]),
  );
  const slot = h("div");
  const out = h("div", {"aria-live": "polite"});
  const list = h("div");
  let form = null;
  let declared = [];
  let watching = null;
  onLeave(main, () => clearTimeout(watching));
  const begin = h("button.primary", {disabled: true}, "Dry run");
  async function events() {
    const wanted = kind.value;
    change(begin, {disabled: true});
    const found = await get(`kinds/${encodeURIComponent(wanted)}`);
    if (kind.value !== wanted) return;
    declared = found.events;
    change(begin, {disabled: !may("bulk")});
    fill(
      event,
      declared.map((each) => h("option", {value: each.name}, each.name)),
    );
    payload();
  }
  function payload() {
    form = schemaForm((declared.find((each) => each.name === event.value) || {}).payload);
    fill(slot, form.node);
  }
  const body = (rest) => ({
    kind: kind.value,
    event: event.value,
    payload: form.value(),
    filter: Object.fromEntries(FILTERS.map(([name]) => [name, filters[name].value.trim() || null])),
    ...rest,
  });
  async function rehearse(submitted) {
    submitted.preventDefault();
    try {
      watch(await post("bulk", body({dry_run: true})), (job) =>
        fill(out, report(job, job.status === "done" && job.seen > 0 && confirm(job))),
      );
    } catch (problem) {
      fill(out, problemNote(problem));
    }
  }
  function confirm(job) {
    const reason = h("input", {id: "bulk-reason", required: true, maxlength: 500, autocomplete: "off"});
    const count = h("input", {id: "bulk-count", type: "number", required: true});
    const speed = h("input", {id: "bulk-speed", type: "number", min: 1, max: 1000, value: 50, required: true});
    const note = h("div");
    return h(
      "form.confirm",
      {
        onsubmit: async (submitted) => {
          submitted.preventDefault();
          try {
            const run = await post(
              "bulk",
              body({
                dry_run: false,
                reason: reason.value,
                rehearsal: job.id,
                per_second: Number(speed.value),
                count: job.seen > 1000 ? Number(count.value) : null,
              }),
            );
            watch(run, (now) => fill(out, report(now)));
            await jobs();
          } catch (problem) {
            fill(note, problemNote(problem));
          }
        },
      },
      h(
        "div.filters",
        h("div.field", h("label", {for: "bulk-reason"}, "Reason, kept in every entry"), reason),
        h("div.field", h("label", {for: "bulk-speed"}, "At most a second"), speed),
        job.seen > 1000 && h("div.field", h("label", {for: "bulk-count"}, `Type ${job.seen} to confirm`), count),
        h("button.danger", `Send ${event.value} to ${many(job.seen, "entity", "entities")}`),
      ),
      note,
    );
  }
  async function watch(job, show) {
    show(job);
    clearTimeout(watching);
    if (isUnderway(job)) watching = setTimeout(async () => watch(await get(`jobs/${job.id}`), show), 300);
    else await jobs();
  }
  const open = (job) => watch(job, (now) => fill(out, report(now)));
  async function jobs() {
    const found = await get("jobs");
    fill(
      list,
      table(
        "Jobs",
        ["Job", "By", "Status", ["Seen", "num"], "Outcomes", ""],
        found.jobs.map((each) =>
          row(
            [
              h("button.link", {onclick: () => open(each)}, each.what),
              each.dry_run && h("span.muted", " dry run"),
              each.reason && h("span.muted", ` “${each.reason}”`),
            ],
            each.who,
            [statusPill(each), h("span.muted", ` ${clock(each.ended_ms || each.noted_ms || each.began_ms)}`)],
            num(number(each.seen)),
            outcomes(each),
            h("td.acts", ...acts(each)),
          ),
        ),
        "No jobs yet.",
      ),
    );
  }
  function acts(job) {
    if (job.ended_ms !== null || !may("bulk")) return [];
    const act = (name) =>
      h(
        "button.quiet",
        {
          onclick: async () => {
            try {
              const now = await post(`jobs/${job.id}/${name}`);
              if (name === "resume") await open(now);
            } catch (problem) {
              fill(out, problemNote(problem));
            }
            await jobs();
          },
        },
        name,
      );
    return [act(job.status === "running" ? "pause" : "resume"), act("cancel")];
  }
  const field = (node, label) => h("div.field", h("label", {for: node.id}, label), node);
  fill(
    main,
    h("div.title", h("h1", "Bulk")),
    h(
      "section.card",
      h(
        "p.muted",
        "One event for every entity of a filter. The filter is frozen when its dry run begins; each entity is asked, authorized and journaled by itself; whatever has moved on meanwhile is skipped.",
      ),
      h(
        "form",
        {onsubmit: rehearse},
        h(
          "div.filters",
          field(kind, "Kind"),
          field(event, "Event"),
          FILTERS.map(([name, label]) => field(filters[name], label)),
        ),
        slot,
        h("footer", begin),
      ),
      out,
    ),
    h("section.card", h("h2", "Jobs"), list),
  );
  await events();
  return jobs();
});

const isUnderway = (job) => job.status === "running";

const statusPill = (job) =>
  h(
    "span.pill",
    {class: job.status === "done" ? "good" : job.status === "interrupted" || job.status === "failed" ? "bad" : ""},
    job.status === "interrupted" ? `⚠ ${job.status}` : job.status,
  );

const outcomes = (job) =>
  Object.entries(job.outcomes).map(([word, count]) =>
    h(
      "span.pill",
      {class: word === "applied" || word === "proven" ? "good" : word === "ignored" ? "" : "bad"},
      `${word} ${number(count)}`,
    ),
  );

function report(job, next = null) {
  const head =
    isUnderway(job)
      ? h("p", h("span.spin"), ` ${number(job.seen)} so far…`)
      : h(
          "p",
          h(
            "b",
            job.dry_run
              ? `A dry run over ${many(job.seen, "entity", "entities")}: nothing was sent.`
              : `${job.status}: ${many(job.seen, "entity", "entities")}`,
          ),
        );
  const share = (title, counts) =>
    Object.keys(counts).length > 0 &&
    h(
      "div",
      h("h4", title),
      h(
        "ul.plain",
        Object.entries(counts).map(([name, count]) => h("li", h("span.mono", name), " ", h("b", number(count)))),
      ),
    );
  const rows = [...job.samples, ...job.problems].map((each) =>
    row(entityLink(each.entity), states(each.configuration || []), [
      each.outcome || (each.code && h("code", each.code)),
      (each.reason || each.message) && h("span.muted", ` ${each.reason || each.message}`),
    ]),
  );
  const listed = (some) => table("Samples", ["Entity", "State", "Outcome"], some, job.dry_run ? "No entity matches." : "None so far.");
  return h(
    "div.report",
    h("h3", job.what),
    head,
    job.advice && h("div.note.warn", {role: "status"}, job.advice),
    h("p", outcomes(job)),
    job.error && problemNote({detail: job.error}),
    h("div.columns", share("By state", job.states), share("By revision", job.revisions)),
    next,
    rows.length > SAMPLES + 1
      ? [
          listed(rows.slice(0, SAMPLES)),
          h("details.rest", h("summary", `${number(rows.length - SAMPLES)} more`), listed(rows.slice(SAMPLES))),
        ]
      : listed(rows),
  );
}
