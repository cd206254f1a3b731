// One process of a peer on Node.js: the same data and the same lines of JSON as worker.py and workloads.py.
// CPU time is that of the whole process, so V8's own compiler and collector threads count: figures are upper bounds.
import { readFileSync } from 'node:fs';
import readline from 'node:readline';

export const { order: ORDER, nested: NESTED, regions: REGIONS } =
  JSON.parse(readFileSync(new URL('../workloads.json', import.meta.url)));

export function cycle(list, count) {
  return Array.from({ length: count }, (_, position) => list[position % list.length]);
}

function expect(fine, found) {
  if (!fine) throw new Error('wrong result: ' + JSON.stringify(found));
}

export const check = {
  toggle: (state, count) => expect(state === (count % 2 ? 'on' : 'off'), state),
  order: (state, context, count) => expect(
    state === 'draft' && context.count === count && context.last === ORDER.events.at(-1)[0], [state, context]),
  nested: (isHome, moves, count) => {
    const wanted = NESTED.moves_per_cycle * count / NESTED.events.length;
    expect(isHome && moves.entries === wanted && moves.exits === wanted, [isHome, moves]);
  },
  regions: (states, count) => expect(
    states.length === REGIONS.length && states.every(state => state === (count % 2 ? 'on' : 'off')), states),
};

function cpu() {
  const used = process.cpuUsage();
  return (used.user + used.system) * 1000;
}

export function timed(events, send) {
  const start_ns = cpu();
  for (let position = 0; position < events.length; position++) send(events[position]);
  return cpu() - start_ns;
}

function created(make, count) {
  make();
  const kept = new Array(count);
  global.gc();
  const before = process.memoryUsage().rss;
  const start_ns = cpu();
  for (let position = 0; position < count; position++) kept[position] = make();
  const ns = cpu() - start_ns;
  global.gc();
  const bytes = Math.max(0, process.memoryUsage().rss - before) / count;
  expect(kept.length === count, kept.length);
  return { ns: ns / count, bytes };
}

export function serve({ name, version, drives, create }) {
  const workloads = [...Object.keys(drives), 'W5'].sort();
  console.log(JSON.stringify({ name, version: `${version}, Node.js ${process.versions.node}`, workloads }));
  readline.createInterface({ input: process.stdin }).on('line', line => {
    const { workload, count } = JSON.parse(line);
    let answer;
    try {
      global.gc();
      answer = workload === 'W5' ? created(create(), count) : { ns: drives[workload](count) / count };
    } catch (error) {
      answer = { error: String(error?.message || error) };
    }
    console.log(JSON.stringify(answer));
  });
}
