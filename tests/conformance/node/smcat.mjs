// Parses smcat texts with state-machine-cat itself: a JSON list of texts in, one line per text out
// (its parsed form, or null where it is refused).
import { readFileSync } from "node:fs";
import { render } from "state-machine-cat";

for (const text of JSON.parse(readFileSync(0, "utf8"))) {
  let parsed = null;
  try {
    parsed = await render(text, { outputType: "json" });
  } catch {
    // refused
  }
  console.log(JSON.stringify(parsed));
}
