// Parses smcat texts with state-machine-cat itself: a JSON list of texts in, a JSON list of what it makes of them out
// (null where a text is refused).
import { readFileSync } from "node:fs";
import { render } from "state-machine-cat";

const answers = [];
for (const text of JSON.parse(readFileSync(0, "utf8"))) {
  try {
    answers.push(await render(text, { outputType: "json" }));
  } catch {
    answers.push(null);
  }
}
console.log(JSON.stringify(answers));
