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

/**
 * A pytest test that repeats the steps of these entries and asserts the configuration after each. It loads the file of
 * the chart; a chart that came from no file is taken from where `interlock new` puts it.
 */
export function asTest({entity, kind, file}, entries) {
  const name = entity.toLowerCase().replace(/[^a-z0-9]+/g, "_");
  const lines = [
    "import interlock",
    "",
    "",
    `def test_${name}() -> None:`,
    `    chart = interlock.load(${python(file || `${kind}.interlock.yaml`)})`,
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

/** A value that a JSON Schema accepts: only what it requires, and the least of that. */
export function sample(schema) {
  if (!schema) return null;
  if ("const" in schema) return schema.const;
  if ("default" in schema) return schema.default;
  if (Array.isArray(schema.enum) && schema.enum.length) return schema.enum[0];
  const type = Array.isArray(schema.type) ? schema.type.find((each) => each !== "null") || null : schema.type;
  if (type === "object") {
    const needed = Object.entries(schema.properties || {}).filter(([name]) => (schema.required || []).includes(name));
    return Object.fromEntries(needed.map(([name, one]) => [name, sample(one)]));
  }
  if (type === "array") return Array.from({length: schema.minItems || 0}, () => sample(schema.items));
  if (type === "integer" || type === "number") {
    const least = schema.minimum ?? (schema.exclusiveMinimum === undefined ? 0 : schema.exclusiveMinimum + 1);
    return schema.maximum === undefined ? least : Math.min(least, schema.maximum);
  }
  if (type === "boolean") return false;
  if (type === "string") return "x".repeat(schema.minLength || 0);
  return null;
}

const quoted = (text) => `'${text.replace(/'/g, `'\\''`)}'`;

/**
 * A curl command that works: it sends the first event that the entity accepts now, with the least payload that its
 * schema accepts. An entity that accepts none is read. The API key comes from the environment.
 */
export function asCurl(entity, accepted) {
  const path = entity.split("/").map(encodeURIComponent).join("/");
  const header = `  -H "Authorization: Bearer $INTERLOCK_KEY"`;
  const first = accepted.find((each) => each.accepted);
  if (!first) return `curl -sS ${quoted(`${location.origin}/api/v1/entity/${path}`)} \\\n${header}\n`;
  const body = {event: first.event, payload: sample(first.payload), reason: "sent with curl"};
  return [
    `curl -sS -X POST ${quoted(`${location.origin}/api/v1/send/${path}`)} \\`,
    `${header} -H 'Content-Type: application/json' \\`,
    `  -d ${quoted(JSON.stringify(body))}\n`,
  ].join("\n");
}
