"""Charts as people write them, for the comparison of compiled steps with general ones."""

REALISTIC = {
    "timers": """
        context: {n: {type: integer, default: 0}}
        states:
          a:
            after: {48h: b}
            on: {go: {target: b, actions: [{assign: {n: "= context.n + 1"}}]}, set: {target: a, reenter: true}}
          b:
            after: {48h: a, 2h: {actions: [reminder]}, 3h: {}}
            on: {go: {target: a, actions: [left]}, set: {actions: [x]}}
    """,
    "nested timers": """
        context: {n: {type: integer, default: 0}, wait: {type: string, default: 5s}}
        states:
          open:
            after: {1d: {target: closed, guard: "= context.n > 2"}}
            initial: idle
            on: {stop: closed, again: {target: open, reenter: true}}
            states:
              idle: {on: {go: {target: busy, guard: "= event.data != 7", actions: [{assign: {n: "= context.n + 1"}}]}}}
              busy:
                after: {10s: idle, "= context.wait": {actions: [late]}}
                entry: [+busy]
                exit: [-busy]
                on: {go: idle}
          closed: {on: {go: open}}
    """,
    "invokes": """
        context: {result: {type: any, default: null}, tries: {type: integer, default: 0}}
        states:
          idle: {on: {go: working}}
          working:
            invoke:
              id: job
              src: do.work
              input: {tries: "= context.tries", fixed: [1, 2]}
              retry: {max: 3, backoff: 1s, on: [timeout]}
              timeout: 1m
              key: "= 'k' + str(context.tries)"
              onDone: {target: done, guard: "= event.data != 2", actions: [{assign: {result: "= event.data"}}]}
              onError:
                - {target: idle, guard: "= context.tries < 3", actions: [{assign: {tries: "= context.tries + 1"}}]}
                - {target: failed}
            after: {1h: failed}
            on: {stop: idle, set: {actions: [note]}}
          done: {entry: [{emit: {type: work.done, data: "= context.result"}}], on: {go: working}}
          failed: {on: {go: idle}}
    """,
    "two invokes": """
        states:
          a:
            invoke:
              - {id: first, src: f, onDone: {actions: [one]}, onError: {guard: "= event.data.done == 'no'", target: b}}
              - {id: second, src: g, type: chart, onRestore: restart, onDone: b}
            on: {go: b, set: {target: a, reenter: true}}
          b: {invoke: {src: h, onDone: a}, on: {go: a}}
    """,
    "regions": """
        type: parallel
        context: {n: {type: integer, default: 0}, m: {type: integer, default: 0}}
        states:
          left:
            initial: a
            states:
              a: {after: {10s: b}, on: {go: {target: b, guard: "= context.n < 3"}, set: {actions: [{assign: {n: 0}}]}}}
              b: {entry: [{assign: {n: "= context.n + 1"}}], after: {20s: a}, on: {go: a}}
          right:
            initial: c
            states:
              c: {on: {go: {target: d, guard: "= In('left.a') or event.data == 1"}}}
              d:
                entry: [{do: seen, with: {inside: "= In('left.b')"}}]
                invoke: {id: job, src: f, onDone: c}
                on: {stop: c}
        on: {stop: {guard: "= context.m < 5", actions: [{assign: {m: "= context.m + 1"}}]}}
    """,
    "messages": """
        context:
          n: {type: integer, default: 0}
          other: {type: string, default: other/7}
          list: {type: any, default: [1, 2]}
          each: {type: integer, default: 0}
        states:
          a:
            on:
              go:
                target: b
                actions:
                  - {send: {event: hello, to: "= context.other", data: {n: "= context.n"}}}
                  - {send: {event: ping, data: "= event.data", id: s1}}
                  - {emit: {type: changed, data: {n: "= context.n", at: "= event.time_ms"}}}
                  - {log: hello}
                  - {send: {event: inside, to: internal, id: s2, data: 1}}
              set: {actions: [{assign: {n: "= event.data"}}, {send: {event: up, to: parent}}]}
          b:
            initial: c
            states: {c: {on: {inside: {target: d, actions: [{do: x, with: {id: "= event.sendid"}}]}}}, d: {}}
            entry: [{send: {event: due, delay: 10s, id: reminder, data: {n: "= context.n"}}}]
            exit: [{cancel: reminder}]
            on:
              go: a
              stop:
                actions:
                  - {send: {event: later, delay: 1m, to: "= context.other"}}
                  - {send: {event: due, delay: 5s}}
                  - {foreach: {in: "= context.list", item: each, do: [{do: one, with: {each: "= context.each"}}]}}
              due:
                actions:
                  - {assign: {n: "= context.n + 1"}}
                  - {if: "= context.n > 3", then: [enough], else: [{assign: {n: 9}}]}
              set: {target: a, actions: [{cancel: "= 'remin' + 'der'"}]}
    """,
    "completion": """
        context: {n: {type: integer, default: 0}, out: {type: any, default: null}}
        states:
          work:
            initial: one
            onDone: {target: rest, actions: [{assign: {out: "= event.data"}}]}
            states:
              one: {on: {go: two, stop: end}}
              two:
                entry: [{raise: {event: check, data: "= context.n"}}]
                on: {check: {target: end, guard: "= event.data > 1"}, go: one}
              end: {type: final, output: {n: "= context.n", fixed: 1}}
          rest:
            always: {target: work, guard: "= context.n < 4", actions: [{assign: {n: "= context.n + 1"}}]}
            on: {go: last, set: {target: work, actions: [{assign: {n: 0}}]}}
          last: {after: {1h: done}, on: {go: done, set: work}}
          done: {type: final, output: "= context.out"}
    """,
    "history": """
        states:
          on:
            initial: x
            on: {stop: off}
            states:
              x: {on: {go: y}}
              y: {initial: p, states: {p: {on: {go: q}}, q: {on: {go: x}}}}
              h: {type: history, target: x}
              d: {type: history, history: deep, target: y.q}
          off: {on: {go: on.h, set: on.d}}
    """,
    "declared": """
        events:
          go: {payload: {n: {type: integer, default: 3}}}
          set: {payload: {n: integer}}
          stop: {}
          inner: {direction: internal}
        context: {n: {type: integer, default: 0, max: 100}, nested: {type: any, default: {k: {v: 1}, list: [1, 2]}}}
        states:
          a:
            on:
              go: {target: b, actions: [{assign: {n: "= event.data.n"}}]}
              set: {actions: [{assign: {nested.k.v: "= event.data.n"}}]}
              inner: {actions: [{assign: {n: "= context.n + 1"}}]}
          b:
            exit: [{send: {event: inner, delay: 3s}}, {send: {event: inner}}]
            on:
              go: a
              stop: {target: a, roles: [clerk]}
              set: {actions: [{assign: {nested.list.1: "= event.data.n"}}]}
    """,
    "paths": """
        context:
          a: {type: object, default: {x: {y: 1, z: {w: 2}}, list: [1, {k: 1}]}}
          b: {type: any, default: {x: {y: 0}, "1": {k: 0}}}
          strict: {type: object, default: {n: 1}, fields: {n: {type: integer, min: 0}}}
          kept: {type: any, default: null}
          key: {type: string, default: ""}
          n: {type: integer, default: 0}
          each: any
          list: {type: array, default: [1, 2, 3]}
          made: {type: object, default: {}}
        states:
          one:
            on:
              go:
                target: two
                actions:
                  - {assign: {a.x.y: "= event.data", kept: "= context.a.x"}}
                  - {assign: {a.x.y: later, a.x.z.w: "= str(entity.version)", a.x.z.new: "= context.a.x.z"}}
                  - {assign: {a.x.z.w: 7, key: "= entity.id + '/' + str(entity.version) + '/' + entity.kind"}}
                  - {assign: {a.self: "= context.a"}}
                  - {assign: {a.x.y: {deep: 1}, a.x.y.deep: 2, kept.z.w: 3}}
                  - {do: seen, with: {x: "= context.a.x"}}
                  - {assign: {a.x.y.deep: 4, n: "= entity.version + 1"}}
              set:
                actions:
                  - {assign: {a: {x: {y: 1, z: {w: 0}}, list: [0, {k: 2}]}}}
                  - {assign: {a.x.y: 2, a.list.1.k: "= event.data", made: "= {'n': context.n, 'of': context.kept}"}}
                  - {assign: {made.n: "= {'x': context.made, 'y': [event.data]}", made.more: "= context.made"}}
                  - {assign: {made.n: 2, b.x.y: "= event.name", b.1.k: 3}}
                  - {assign: {a.x.y: 3, made: "= {'now': context.a.x}"}}
                  - {assign: {a.x.y: 4}}
              stop: {target: two, actions: [{assign: {strict.n: "= event.data"}}]}
          two:
            on:
              go:
                target: one
                actions:
                  - {assign: {a.x.y: 1, a.x.z: {w: 1}}}
                  - if: "= context.n > 3"
                    then: [{assign: {kept: "= context.a.x", a.x.z.w: 2}}]
                    else: [{assign: {a.x: {y: {}, z: {w: 9}}, a.x.z.w: 3}}]
                  - {assign: {a.x.z.w: "= context.n"}}
                  - foreach: {in: "= context.list", item: each, do: [
                      {assign: {a.x.y: "= context.each", b.last: "= context.a.x", a.x.z.w: 5}}]}
                  - {assign: {a.x.y: 0, kept: null, a.self: null}}
                  - {assign: {a.x: {y: 5, z: {w: 1}}}}
                  - {assign: {a.x.y: 6, a.x.z.w: 2}}
                  - {if: "= event.data != 7", then: [{assign: {kept: "= context.a.x"}}]}
                  - {assign: {a.x.y: 8, b.x.y: 9}}
                  - foreach: {in: "= [1, 2]", item: each, do: [
                      {assign: {a.x.y: 10}}, {assign: {b.x: "= context.a.x"}}, {assign: {a.x.y: 12}}]}
                  - {assign: {a.x.y: 11}}
              set: {target: one, actions: [{assign: {kept.missing.k: 1}}]}
              stop: {target: one, actions: [{assign: {kept: {z: {}}}}, {assign: {made: "= context.b.x"}}, {assign: {
                made.y: "= context.made"}}]}
    """,
    "insides": """
        type: parallel
        context: {n: {type: integer, default: 0}}
        states:
          left:
            initial: a
            states: {a: {on: {go: b, set: c}}, b: {on: {go: a, set: c}}, c: {on: {stop: a}}}
          right:
            initial: d
            states:
              d:
                always: {target: f, guard: {all: [{in: left.c}, "= context.n > 0"]}}
                on:
                  go:
                    - {target: e, guard: {any: [{in: left.b}, "= event.data == 1"]}}
                    - {target: f, guard: {all: [{not: {in: left.b}}, {any: []}]}}
                    - {guard: {not: {all: []}}, actions: [never]}
                    - {guard: {all: [{in: left.a}, {any: [{in: left.c}, {not: {in: left.c}}]}]}, actions: [a]}
                  set: {guard: {in: left.b}, roles: [clerk], target: e}
              e: {on: {go: {target: d, guard: {any: [{in: left.c}, {in: left.b}]}}, stop: d}}
              f: {entry: [{assign: {n: "= context.n + 1"}}], on: {go: d, stop: {target: e, guard: {in: left.c}}}}
    """,
    "ignoring": """
        unhandled: ignore
        context: {n: {type: integer, default: 0}}
        states:
          a:
            on:
              go: {target: b, guard: "= entity.version % 3 != 0", actions: [{do: x, with: {id: "= entity.id"}}]}
              set: {}
          b:
            after: {1s: {target: a, guard: "= context.n > 0"}}
            on: {go: {target: a, actions: [{assign: {n: "= context.n + 1"}}]}}
    """,
    "scxml": """
        dialect: scxml
        context: {n: {type: integer, default: 0}}
        states:
          a:
            on: {go: b, go.more: a}
            invoke: {id: kid, src: child, type: chart, autoforward: true}
            entry: [{assign: {n: "= context.n + 1"}}]
          b: {on: {go: {target: c, guard: "= event.name == 'go'"}, '*': {actions: [any]}}}
          c: {on: {go: a, done.invoke: b}, exit: [{raise: left}]}
    """,
    "raising": """
        errors: raise
        context: {n: {type: integer, default: 0}}
        states:
          a: {on: {go: {target: b, actions: [{assign: {n: "= 10 // event.data"}}]}}}
          b: {after: {3s: a}, invoke: {id: job, src: f, onDone: a}, on: {go: a}}
    """,
}
"""Definitions without their first two lines."""

SAGA = """
interlock: 1
kind: test
context: {room: {type: string, nullable: true}, flight: {type: string, nullable: true}}
initial: pending
states:
  pending:
    allow: {saga.left_midway: this is what the test is about}
    on: {stop: cancelled}
    expect: {within: 1h}
    saga:
      steps:
        - {id: room, do: {src: hotel.book, output: room}, timeout: 1m,
           compensate: {src: hotel.free, input: {room: "= context.room"}}}
        - {id: flight, do: {src: flight.book, output: flight, key: "= 'fl-' + entity.id"}, timeout: 1m,
           compensate: {src: flight.free}}
      onDone: booked
      onCompensated: cancelled
      onError: cancelled
  booked: {on: {go: pending}}
  cancelled: {expect: {within: forever}, on: {go: pending, set: gone}}
  gone: {type: final}
"""

XSTATE = """
{"id": "m", "initial": "a", "context": {"n": 0},
 "states": {
   "a": {"entry": "in", "after": {"1000": "b"}, "on": {"go": "b", "set": {"actions": "x"}}},
   "b": {"initial": "p", "invoke": {"id": "job", "src": "f", "onDone": "a"}, "on": {"stop": "a"},
         "states": {"p": {"on": {"go": "q"}}, "q": {"always": {"target": "r", "guard": "yes"}, "on": {"go": "p"}},
                    "r": {"on": {"go": "#m.a"}}}}}}
"""
