// Bulk send: one event for every entity that matches a filter, always after a dry run.

import {get, may, post} from "/static/api.js";
import {attrs, change, fill, h, onLeave, page} from "/static/dom.js";
import {REASONS, entityLink, num, problemNote, row, schemaForm, states, table, time} from "/static/components.js";
import {lookup, quantity, number} from "/static/format.js";

/** Entities of a report that are not folded. */
const SAMPLES = 10;

/** Names, labels, and choices. */
const FILTERS = [
  ["q", "Id prefix"],
  ["state", "State", (view) => view.states.map((each) => each.id)],
  ["older", "In state longer than", null, "2h"],
  ["tag", "Tag", (view) => [...new Set(view.states.flatMap((each) => each.tags))]],
  ["revision", "Revision", (view) => view.revisions.map((each) => each.revision)],
];

page("/bulk", async (main, _, given) => {
  document.title = "Bulk send · Interlock";
  const {kinds} = await get("kinds");
  const known = kinds.filter((each) => each.chart).map((each) => each.kind);
  if (!known.length) return fill(main, h("section.card", h("p.empty", "No charts loaded")));
  const kind = h(
    "select",
    attrs({id: "bulk-kind", onchange: loadKind}),
    known.map((each) => h("option", attrs({value: each}), each)),
  );
  if (known.includes(given.get("kind"))) kind.value = given.get("kind");
  const event = h("select", attrs({id: "bulk-event", onchange: showPayload}));
  const filters = Object.fromEntries(
    FILTERS.map(([name, , choices, placeholder]) => [
      name,
      choices
        ? h("select", attrs({id: `bulk-${name}`}))
        : h("input", attrs({id: `bulk-${name}`, value: given.get(name) || "", autocomplete: "off", size: 12, placeholder})),
    ]),
  );
  const slot = h("div");
  const out = h("div", attrs({"aria-live": "polite"}));
  const list = h("div");
  let form = null;
  let declared = [];
  let watching = null;
  onLeave(main, () => clearTimeout(watching));
  const dryRunButton = h("button.primary", attrs({disabled: true, "data-testid": "dry-run"}), "Dry run");
  async function loadKind() {
    const wanted = kind.value;
    change(dryRunButton, {disabled: true});
    const found = await get(`kinds/${encodeURIComponent(wanted)}`);
    if (kind.value !== wanted) return;
    declared = found.events;
    for (const [name, , choices] of FILTERS) {
      if (!choices) continue;
      const preset = wanted === given.get("kind") && given.get(name);
      const listed = [...new Set([...choices(found.kind), ...(preset ? [preset] : [])])];
      fill(
        filters[name],
        h("option", attrs({value: ""}), "any"),
        listed.map((each) => h("option", attrs({value: each}), each)),
      );
      filters[name].value = preset || "";
    }
    change(dryRunButton, {disabled: !may("bulk")});
    fill(
      event,
      declared.map((each) => h("option", attrs({value: each.name}), each.name)),
    );
    showPayload();
  }
  function showPayload() {
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
  async function dryRun(submitted) {
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
    const reason = h("input", attrs({id: "bulk-reason", required: true, maxlength: 500, autocomplete: "off"}));
    const count = h("input", attrs({id: "bulk-count", type: "number", required: true}));
    const speed = h("input", attrs({id: "bulk-speed", type: "number", min: 1, max: 1000, value: 50, required: true}));
    const note = h("div");
    return h(
      "form.confirm",
      attrs({
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
      }),
      h(
        "div.filters",
        h("div.field", h("label", attrs({for: "bulk-reason"}), "Reason (stored in every entry)"), reason),
        h("div.field", h("label", attrs({for: "bulk-speed"}), "Rate limit (per second)"), speed),
        job.seen > 1000 && h("div.field", h("label", attrs({for: "bulk-count"}), `Type ${job.seen} to confirm`), count),
        h("button.danger", attrs({"data-testid": "confirm-bulk"}), `Send ${event.value} to ${quantity(job.seen, "entity", "entities")}`),
      ),
      note,
    );
  }
  async function watch(job, show) {
    show(job);
    clearTimeout(watching);
    if (isRunning(job)) watching = setTimeout(async () => watch(await get(`jobs/${job.id}`), show), 300);
    else await jobs();
  }
  const open = (job) => watch(job, (now) => fill(out, report(now)));
  async function jobs() {
    const found = await get("jobs");
    fill(
      list,
      table(
        "Jobs",
        ["Job", ["By", ""], "Status", ["Processed", "num"], "Outcomes", ""],
        found.jobs.map((each) =>
          row(
            [
              h("button.link", attrs({onclick: () => open(each)}), each.what),
              each.dry_run && h("span.muted", " dry run"),
              each.reason && h("span.muted", ` “${each.reason}”`),
            ],
            each.who,
            [statusPill(each), " ", h("span.muted", time(each.ended_ms || each.noted_ms || each.began_ms))],
            num(number(each.seen)),
            outcomes(each),
            h("td.acts", ...acts(each)),
          ),
        ),
        "No jobs yet",
      ),
    );
  }
  function acts(job) {
    if (job.ended_ms !== null || !may("bulk")) return [];
    const act = (name) =>
      h(
        "button",
        attrs({
          "data-testid": `${name}-job`,
          onclick: async () => {
            try {
              const now = await post(`jobs/${job.id}/${name}`);
              if (name === "resume") await open(now);
            } catch (problem) {
              fill(out, problemNote(problem));
            }
            await jobs();
          },
        }),
        LABELS[name],
      );
    return [act(job.status === "running" ? "pause" : "resume"), act("cancel")];
  }
  const field = (node, label) => h("div.field", h("label", attrs({for: node.id}), label), node);
  fill(
    main,
    h("div.title", h("h1", "Bulk send")),
    h(
      "section.card",
      h(
        "p.muted",
        "Sends one event to every entity that matches a filter. The filter is fixed when the dry run starts. Each send is authorized and journaled separately; entities that changed since the dry run are skipped.",
      ),
      h(
        "form",
        attrs({onsubmit: dryRun}),
        h(
          "div.filters",
          field(kind, "Kind"),
          field(event, "Event"),
          FILTERS.map(([name, label]) => field(filters[name], label)),
        ),
        slot,
        h("footer", dryRunButton),
      ),
      out,
    ),
    h("section.card", h("h2", "Jobs"), list),
  );
  await loadKind();
  return jobs();
});

const isRunning = (job) => job.status === "running";

const statusPill = (job) =>
  h(
    "span.pill",
    attrs({class: job.status === "done" ? "good" : job.status === "interrupted" || job.status === "failed" ? "bad" : ""}),
    job.status === "interrupted" ? `⚠ ${job.status}` : job.status,
  );

const STATUSES = {
  running: "Running",
  paused: "Paused",
  interrupted: "Interrupted",
  done: "Done",
  failed: "Failed",
  cancelled: "Cancelled",
};
const LABELS = {pause: "Pause", resume: "Resume", cancel: "Cancel"};
const OUTCOMES = {proven: "verified", unproven: "not verified", damaged: "corrupt"};
const TONES = {applied: "good", proven: "good", ignored: ""};
const tone = (outcome) => lookup(TONES, outcome) ?? "bad";

const outcomes = (job) =>
  Object.entries(job.outcomes).map(([word, count]) =>
    h("span.pill", attrs({class: tone(word)}), `${lookup(OUTCOMES, word) ?? word} ${number(count)}`),
  );

function report(job, next = null) {
  const head =
    isRunning(job)
      ? h("p", h("span.spin"), ` ${number(job.seen)} processed…`)
      : h(
          "p",
          h(
            "b",
            job.dry_run
              ? `Dry run: ${quantity(job.seen, "entity", "entities")}, nothing sent`
              : `${STATUSES[job.status]}: ${quantity(job.seen, "entity", "entities")}`,
          ),
        );
  const share = (title, counts) =>
    Object.keys(counts).length > 0 &&
    h(
      "div",
      h("h4", title),
      table(
        title,
        [],
        Object.entries(counts)
          .sort(([, one], [, other]) => other - one)
          .map(([name, count]) => row(h("span.mono", name), num(number(count)))),
        "",
        "tally",
      ),
    );
  const rows = [...job.samples, ...job.problems].map((each) =>
    row(entityLink(each.entity), states(each.configuration || []), [
      each.outcome ? h("span", attrs({class: tone(each.outcome)}), each.outcome) : each.code && h("code", each.code),
      (each.reason || each.message) && h("span.muted", ` ${lookup(REASONS, each.reason) || each.reason || each.message}`),
    ]),
  );
  const listed = (some) => table("Samples", ["Entity", "State", "Outcome"], some, job.dry_run ? "No matching entities" : "No samples yet");
  return h(
    "div.report",
    attrs({"data-testid": "job-report", "data-status": job.status}),
    h("h3", job.what),
    head,
    job.advice && h("div.note.warn", attrs({role: "status", "data-testid": "job-advice"}), job.advice),
    h("p", outcomes(job)),
    job.error && problemNote({detail: job.error}),
    h("div.columns", share("By state", job.states), share("By revision", job.revisions)),
    next,
    rows.length > 0 && h("h4", "Samples"),
    rows.length > SAMPLES + 1
      ? [
          listed(rows.slice(0, SAMPLES)),
          h("details.rest", h("summary", `${number(rows.length - SAMPLES)} more`), listed(rows.slice(SAMPLES))),
        ]
      : listed(rows),
  );
}
