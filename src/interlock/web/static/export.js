// Text to copy: a journal as a test, a request as a command.

/** A value as a Python literal. */
function python(value) {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (typeof value !== "object") return JSON.stringify(value);
  const pairs = Object.entries(value).map(([key, one]) => `${JSON.stringify(key)}: ${python(one)}`);
  return `{${pairs.join(", ")}}`;
}

/** A pytest test that repeats the steps of these entries and asserts the configuration after each. */
export function asTest(kind, entity, entries) {
  const name = entity.toLowerCase().replace(/[^a-z0-9]+/g, "_");
  const lines = [
    "import interlock",
    "",
    "",
    `def test_${name}() -> None:`,
    `    chart = interlock.load("${kind}.yaml")`,
  ];
  for (const {event, data, time_ms: time, after, platform} of entries) {
    if (event === "create") {
      const context = python((data && data.context) || {});
      lines.push(`    step = chart.start(${context}, entity=${python(entity)}, time_ms=${time})`);
    } else {
      const more = Object.entries(platform || {}).map(([key, one]) => `, ${key}=${python(one)}`);
      const given = `interlock.Event(${python(event)}, ${python(data)}, time_ms=${time}${more.join("")})`;
      lines.push(`    step = chart.step(step.snapshot, ${given})`);
    }
    lines.push(`    assert step.snapshot.configuration == (${after.map((each) => `${python(each)},`).join(" ")})`);
  }
  return `${lines.join("\n")}\n`;
}

/** The curl command that sends an event to an entity. */
export function asCurl(entity) {
  const address = `${location.origin}/api/v1/send/${entity.replace(/'/g, "%27")}`;
  return [
    `curl -sS -X POST '${address}' \\`,
    `  -H "Authorization: Bearer $INTERLOCK_KEY" -H 'Content-Type: application/json' \\`,
    `  -d '{"event": "...", "payload": null, "reason": "..."}'\n`,
  ].join("\n");
}
