// SCION (@scion-scxml/core): the algorithm of the SCXML recommendation in JavaScript.
import { createRequire } from 'node:module';
import { NESTED, ORDER, REGIONS, check, cycle, serve, timed } from './worker.mjs';

const require = createRequire(import.meta.url);
const { Statechart } = require('@scion-scxml/core');
const { version } = require('@scion-scxml/core/package.json');

function started(definition) {
  const entity = new Statechart(() => definition); // a plain object would be copied as JSON, and lose its functions
  entity.start();
  return entity;
}

function orderDefinition() {
  const context = { ...ORDER.context };
  const guards = {
    has_items: () => context.items > 0,
    enough: event => event.data.amount >= context.total,
    positive: event => event.data.amount > 0,
    in_time: event => event.data.days <= 30,
  };
  const bump = event => { context.count++; context.last = event.name; };
  const transitionsOf = id => ORDER.transitions.filter(([source]) => source === id).map(
    ([, event, guard, target]) => ({ event, target, cond: guards[guard], onTransition: bump }));
  return [context, { states: ORDER.states.map(id => ({ id, transitions: transitionsOf(id) })) }];
}

function driveOrder(count) {
  const [context, definition] = orderDefinition();
  const entity = started(definition);
  const ns = timed(cycle(ORDER.events.map(([name, data]) => ({ name, data })), count), event => entity.gen(event));
  check.order(entity.getConfiguration()[0], context, count);
  return ns;
}

serve({
  name: 'scion-core',
  version,
  drives: {
    W1(count) {
      const entity = started({
        states: [
          { id: 'off', transitions: [{ event: 'TOGGLE', target: 'on' }] },
          { id: 'on', transitions: [{ event: 'TOGGLE', target: 'off' }] },
        ],
      });
      const ns = timed(cycle([{ name: 'TOGGLE' }], count), event => entity.gen(event));
      check.toggle(entity.getConfiguration()[0], count);
      return ns;
    },
    W2: driveOrder,
    W3(count) {
      const moves = { entries: 0, exits: 0 };
      const state = (id, states) => ({
        id,
        states,
        onEntry: () => { moves.entries++; },
        onExit: () => { moves.exits++; },
        transitions: NESTED.transitions.filter(([source]) => source === id).map(
          ([, event, target]) => ({ event, target })),
      });
      const middles = tree => Object.entries(tree).map(([name, names]) => state(name, names.map(leaf => state(leaf))));
      const entity = started({ states: Object.entries(NESTED.tree).map(([name, tree]) => state(name, middles(tree))) });
      moves.entries = moves.exits = 0;
      const ns = timed(cycle(NESTED.events.map(name => ({ name })), count), event => entity.gen(event));
      check.nested(entity.getConfiguration()[0] === 'A1a', moves, count);
      return ns;
    },
    W4(count) {
      const part = name => ({
        id: name,
        states: [
          { id: name + 'off', transitions: [{ event: 'TICK', target: name + 'on' }] },
          { id: name + 'on', transitions: [{ event: 'TICK', target: name + 'off' }] },
        ],
      });
      const entity = started({ states: [{ id: 'p', $type: 'parallel', states: REGIONS.map(part) }] });
      const ns = timed(cycle([{ name: 'TICK' }], count), event => entity.gen(event));
      check.regions(entity.getConfiguration().map(name => name.slice(2)), count);
      return ns;
    },
    W6: driveOrder,
  },
  create: () => () => started(orderDefinition()[1]),
});
