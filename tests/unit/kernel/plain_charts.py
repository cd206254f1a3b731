"""Definitions of one step each, by how the kernel runs it: compiled or not."""

PLAIN = {
    "a target": "states: {a: {on: {go: b}}, b: {on: {go: a}}}",
    "no target": "states: {a: {on: {go: {actions: [x]}}}}",
    "entry and exit": """
        context: {n: {type: integer, default: 0}}
        states:
          a: {exit: [{do: out, with: {n: "= context.n", data: "= event.data"}}], on: {go: {target: b, actions: [act]}}}
          b: {entry: [in_1, {assign: {n: "= context.n + 1"}}, in_2], on: {go: a}}
    """,
    "guards": """
        context: {n: {type: integer, default: 0}}
        states:
          a:
            on:
              go:
                - {target: b, guard: "= event.data == 1"}
                - {guard: "= event.data < 5", actions: [{assign: {n: "= context.n - event.data"}}, x]}
                - {guard: "= len(event.data) > 2 and event.data[0] != event.data[1]", actions: [y]}
          b: {on: {go: a}}
    """,
    "a last candidate without guard": """
        states: {a: {on: {go: [{guard: "= event.data", target: b}, {actions: [x]}]}}, b: {on: {go: a}}}
    """,
    "In() in a guard": """
        states:
          a: {initial: x, states: {x: {}}, on: {go: {guard: "= In('a.x') and not In('b')", target: b}}}
          b: {on: {go: a}}
    """,
    "a registered guard": "states: {a: {on: {go: [{guard: moody, target: b}, {actions: [x]}]}}, b: {on: {go: a}}}",
    "typed sums": """
        context:
          n: {type: integer, default: 9223372036854775800}
          m: {type: integer, default: 2}
          k: {type: any, default: 0}
        states:
          a:
            on:
              go: {actions: [{assign: {n: "= context.n + context.m", m: "= context.m - 1", k: "= event.data"}}]}
              set: {actions: [{assign: {n: "= event.data"}}]}
    """,
    "untyped sums": """
        context: {k: {type: any, default: 1}}
        states:
          a:
            on:
              go: {actions: [{assign: {k: "= context.k + event.data"}}, x]}
              set: {actions: [{assign: {k: "= event.data"}}]}
    """,
    "typed writes": """
        context:
          flag: {type: boolean, default: false}
          text: {type: string, default: ''}
          copy: {type: string, default: ''}
          n: {type: integer, default: 0}
          bounded: {type: integer, default: 0, max: 1000}
          word: {type: string, default: a, enum: [a, b]}
          short: {type: string, default: '', length_max: 10}
          list: {type: array, default: []}
          tree: {type: any, default: null}
        states:
          a:
            on:
              go:
                actions:
                  - assign:
                      flag: "= context.n > 5"
                      copy: "= context.text"
                      text: "= event.name"
                      n: 7
                      word: b
                      tree: {inner: ["= event.data", 1]}
                      short: "= event.data"
                      bounded: "= len(event.data)"
                      list: "= [event.data, context.list]"
              set: {actions: [{assign: {short: "= event.data", n: "= event.data"}}]}
    """,
    "if with assigns": """
        context: {n: {type: integer, default: 0}, m: {type: integer, default: 0}}
        states:
          a:
            on:
              go:
                actions:
                  - if: "= 10 // event.data > 4"
                    then: [{assign: {n: "= context.n + 1"}}]
                    elif: [{if: "= context.m > 3", then: [{if: "= event.data == 7", then: [{assign: {m: 0}}]}]}]
                    else: [{assign: {m: "= context.m + 1"}}]
                  - x
    """,
    "division": """
        context: {n: {type: number, default: 0}}
        states: {a: {on: {go: {target: b, actions: [{assign: {n: "= 10 / event.data"}}, x]}}}, b: {on: {go: a}}}
    """,
    "long operands": """
        context: {text: {type: any, default: ''}}
        states:
          a:
            on:
              go: {guard: "= event.data == context.text", actions: [x]}
              set: {actions: [{assign: {text: "= event.data"}}]}
    """,
    "a payload": """
        events: {go: {payload: {n: integer, note: {type: string, required: false}}}, set: {}}
        context: {n: {type: integer, default: 0}}
        states: {a: {on: {go: {target: b, actions: [{assign: {n: "= event.data.n"}}]}, set: {}}}, b: {on: {go: a}}}
    """,
    "an assign by function": """
        context: {n: {type: integer, default: 0}, tree: {type: any, default: null}, word: {type: string, default: ''}}
        states:
          a: {on: {go: {target: b, actions: [x, {assign: grow}, {assign: {word: done}}]}}}
          b: {on: {go: {target: a, actions: [{assign: grow_by, with: {by: "= event.data"}}]}}}
    """,
    "regions": """
        type: parallel
        on: {go: {actions: [outer]}}
        states:
          r: {initial: a, states: {a: {on: {go: b}}, b: {entry: [+b], on: {go: a}}}}
          s: {initial: c, states: {c: {exit: [-c], on: {go: {target: d, actions: [act]}}}, d: {}}}
    """,
    "depth": """
        states:
          a: {exit: [-a], initial: x, states: {x: {exit: [-x]}, y: {}}, on: {go: b}}
          b: {entry: [+b], initial: {target: z, actions: [init]}, states: {z: {entry: [+z]}}, on: {go: a.y}}
    """,
    "errors raise": """
        errors: raise
        context: {n: {type: integer, default: 0}}
        states: {a: {on: {go: {guard: "= event.data > 0", actions: [{assign: {n: "= 10 // event.data"}}]}}}}
    """,
    "unhandled ignore": """
        unhandled: ignore
        states: {a: {on: {go: {guard: '= event.data > 3', target: b}}}, b: {on: {go: a}}}
    """,
    "unhandled defer": """
        unhandled: defer
        states: {a: {on: {go: {guard: '= event.data == 1', target: b}}}, b: {on: {go: a}}}
    """,
    "a send": "states: {a: {on: {go: {actions: [{send: {event: e}}]}}}}",
    "a raise": "states: {a: {on: {go: {actions: [{raise: e}]}, e: {actions: [x]}}}}",
    "a log": "states: {a: {on: {go: {actions: [{log: hello}]}}}}",
    "an emit": "states: {a: {on: {go: {actions: [{emit: {type: t}}]}}}}",
    "a nested write": """
        context: {t: {type: any, default: {n: 1}}}
        states: {a: {on: {go: {actions: [{assign: {t.n: 2}}]}}}}
    """,
    "In() in a block": "states: {a: {on: {go: {actions: [{do: x, with: {in: \"= In('a')\"}}]}}}}",
    "roles": "states: {a: {on: {go: {roles: [clerk], target: b}}}, b: {on: {go: a}}}",
    "a default in the payload": """
        events: {go: {payload: {n: {type: integer, default: 1}}}}
        states: {a: {on: {go: {actions: [{do: x, with: {data: "= event.data"}}]}}}}
    """,
    "an eventless source": """
        states: {a: {always: {guard: '= event.data == 9', target: b}, on: {go: {actions: [x]}}}, b: {on: {go: a}}}
    """,
    "an eventless target": "states: {a: {on: {go: b}}, b: {always: c}, c: {on: {go: a}}}",
    "a completion": """
        states: {p: {initial: a, states: {a: {on: {go: f}}, f: {type: final}}, onDone: q}, q: {on: {go: p}}}
    """,
    "the entity in a guard": "states: {a: {on: {go: {guard: '= entity.version > 3', actions: [x]}}}}",
    "the entity in a value": "states: {a: {on: {go: {actions: [{do: x, with: {id: '= entity.id'}}]}}}}",
    "a guard next to regions": """
        type: parallel
        states: {r: {on: {go: {guard: "= event.data", actions: [x]}}}, s: {on: {go: {actions: [y]}}}}
    """,
}
"""Every one has a compiled step for `go` in its first configuration, which changes only states and context."""

WITH_SNAPSHOT = {
    "no transition": "states: {a: {on: {other: {actions: [x]}}}, b: {on: {go: a}}}",
    "an internal event": "events: {go: {direction: internal}, set: {}}\nstates: {a: {on: {go: {actions: [x]}}}}",
    "a timer of the target": "states: {a: {on: {go: b}}, b: {after: {1s: a}, on: {go: a}}}",
    "a timer of the source": "states: {a: {after: {1s: b}, on: {go: b}}, b: {on: {go: a}}}",
    "a timer by send": "states: {a: {on: {go: {actions: [{send: {event: e, delay: 1s}}]}}}}",
    "a cancel": "states: {a: {on: {go: {actions: [{cancel: t}]}}}}",
    "a foreach": "states: {a: {on: {go: {actions: [{foreach: {in: [1], item: i, do: [x]}}]}}}}",
    "a history it leads to": """
        states:
          a: {on: {go: b.h}}
          b: {initial: x, states: {x: {}, y: {}, h: {type: history, target: y}}, on: {go: a}}
    """,
    "a history it records": """
        states: {b: {initial: x, states: {x: {}, h: {type: history, target: x}}, on: {go: a}}, a: {on: {go: b}}}
    """,
    "an if with actions": "states: {a: {on: {go: {actions: [{if: '= event.data', then: [x]}]}}}}",
    "an invoke of the source": "states: {a: {invoke: {id: j, src: f}, on: {go: {actions: [x]}}}}",
    "an invoke of the target": "states: {a: {on: {go: b}}, b: {invoke: {id: j, src: f}, on: {go: a}}}",
    "an end": "states: {a: {on: {go: f}}, f: {type: final}}",
    "no content": "states: {a: {on: {go: {}}}}",
}
"""Every one has a compiled step, which needs or changes more of the snapshot."""

GENERAL = {
    "an outgoing event": "events: {go: {direction: out}}\nstates: {a: {on: {'*': {actions: [x]}}}}",
    "late fields": """
        binding: late
        states: {a: {on: {go: b}}, b: {context: {n: {type: integer, default: 1}}, on: {go: a}}}
    """,
    "a name that stands nowhere": "states: {a: {on: {'*': {actions: [x]}}}}",
    "a malformed expression": """
        dialect: scxml
        context: {n: {type: integer, default: 0}}
        states: {a: {on: {go: {actions: [{assign: {n: "= 1 +"}}]}}}}
    """,
    "a refused constant": """
        dialect: scxml
        context: {n: {type: integer, default: 0}}
        states: {a: {on: {go: {actions: [x, {assign: {n: no}}]}}}}
    """,
}
"""None has a compiled step."""
