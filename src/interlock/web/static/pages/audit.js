// Audit: journal integrity and refused events.

import {get, may, post, query} from "/static/api.js";
import {attrs, fill, h, updateQuery, debounce, onLeave, page} from "/static/dom.js";
import {entityLink, more, num, problemNote, REASONS, row, table, time} from "/static/components.js";
import {entityPath, lookup, quantity, number} from "/static/format.js";

page("/audit", async (main, _, given) => {
  document.title = "Audit · Interlock";
  const filter = {principal: given.get("principal") || ""};
  const body = h("div");
  const integrity = h("div", attrs({"aria-live": "polite"}));
  let rows = [];
  let watching = null;
  onLeave(main, () => clearTimeout(watching));
  async function load(before) {
    const found = await get(`refusals${query({...filter, before})}`);
    rows = before ? [...rows, ...found.rows] : found.rows;
    fill(
      body,
      found.supported
        ? table(
            "Refused events",
            [["No", "num"], "Time", "Outcome", "Event", "Entity", ["By", ""], "Reason"],
            rows.map((each) =>
              row(
                num(each.sequence),
                time(each.time_ms),
                h(
                  "span",
                  attrs({class: each.outcome === "denied" ? "bad" : "warn"}),
                  each.outcome === "ignored" ? "○ " : "✗ ",
                  each.outcome,
                ),
                h("b", each.event),
                each.entity.includes("/") ? entityLink(each.entity) : "",
                each.principal || "",
                [h("code", each.reason), h("span.muted", ` ${lookup(REASONS, each.reason) || ""}`)],
              ),
            ),
            "No refused events",
          )
        : h("p.empty", "This store does not record refused events"),
      more(found.before, () => load(found.before)),
    );
  }
  async function startVerify(entity) {
    try {
      watch(await post("verify", entity ? {entity} : {}));
    } catch (problem) {
      fill(integrity, problemNote(problem));
    }
  }
  async function watch(job) {
    show(job);
    if (job.status === "running") watching = setTimeout(async () => watch(await get(`jobs/${job.id}`)), 250);
    else if (!job.problems.length) {
      const proof = await get("refusals/proof").catch(() => null);
      if (proof)
        integrity.append(
          proof.holds
            ? h("p.good", proof.linked === null ? "✓ Refused events verified" : `✓ ${quantity(proof.linked, "refused event")} verified`)
            : h("p.bad", `✗ The chain of refused events is broken${proof.broken === null ? "" : ` at number ${proof.broken}`}`),
        );
    }
  }
  function show(job) {
    const bad = job.problems;
    const state =
      job.status === "running"
        ? h("p", h("span.spin"), ` ${number(job.seen)} entities verified…`)
        : bad.length
          ? h(
              "p.bad",
              `✗ ${quantity(bad.length, "entity has a problem", "entities have problems")} (${number(job.seen)} verified)`,
            )
          : job.error || job.advice || job.status !== "done"
            ? problemNote({detail: job.error || job.advice || `The job was ${job.status}.`})
            : h(
                "p.good",
                `✓ ${quantity(job.seen, "entity", "entities")} verified: hash chains intact, replay matches`,
              );
    fill(
      integrity,
      state,
      job.ended_ms !== null && h("p.muted", `${job.what}, by ${job.who}, `, time(job.ended_ms)),
      bad.map((each) =>
        h(
          "div.broken",
          attrs({role: "alert"}),
          h("p", entityLink(each.entity), " ", h("code", each.code)),
          chain(each),
          h("p", each.message),
        ),
      ),
    );
  }
  const changed = debounce(200, async () => {
    updateQuery(filter);
    await load(null);
  });
  const who = h("input", attrs({
    id: "audit-who",
    value: filter.principal,
    autocomplete: "off",
    oninput: () => {
      filter.principal = who.value.trim();
      changed();
    },
  }));
  const one = h("input", attrs({id: "audit-one", placeholder: "order/A-1 (empty: all)", autocomplete: "off", size: 26}));
  fill(
    main,
    h("div.title", h("h1", "Audit")),
    h(
      "section.card",
      h("h2", "Journal integrity"),
      h(
        "p.muted",
        "Each entry contains a hash of the previous one. Verification checks every hash, replays every step and compares the results.",
      ),
      h(
        "form.filters",
        attrs({
          onsubmit: (event) => {
            event.preventDefault();
            startVerify(one.value.trim());
          },
        }),
        h("div.field", h("label", attrs({for: "audit-one"}), "Entity"), one),
        h("button.primary", attrs({disabled: !may("read:audit"), "data-testid": "verify"}), "Verify"),
      ),
      integrity,
    ),
    h(
      "section.card",
      h("h2", "Refused events"),
      h(
        "form.filters",
        attrs({onsubmit: (event) => event.preventDefault()}),
        h("div.field", h("label", attrs({for: "audit-who"}), "Principal"), who),
      ),
      body,
    ),
  );
  await load(null);
  const last = (await get("jobs")).jobs.find((each) => each.what === "verify");
  if (last) watch(last);
});

/** The last valid versions and the corrupt one. */
function chain(bad) {
  const first = Math.max(1, bad.version - 4);
  const good = Array.from({length: bad.version - first}, (_, at) => first + at);
  return h(
    "ol.chain",
    attrs({"aria-label": `The chain is broken at version ${bad.version}`}),
    first > 1 && h("li.gap", "…"),
    good.map((version) => h("li.ok", h("a", attrs({href: `${entityPath(bad.entity)}?version=${version}`}), version))),
    h("li.bad", attrs({"data-version": bad.version}), `✗ ${bad.version}`),
    h("li.gap", "not verified"),
  );
}
