------------------------------ MODULE Lifecycle ------------------------------
(* The lifecycle of shared memory, written a second time and checked by another program.                           *)
(*                                                                                                                  *)
(* The steps are those of docs/internals/shared-memory.md: J join, E enter, X exit, D drain, C close scan,          *)
(* T take over, W wait. One action is one atomic operation. A kill may come before every step of a mortal process:  *)
(* its lock byte is freed, shared memory stays. Sleeping is left out: a waiter that checks again is a waiter whose  *)
(* sleep has a limit. `Fault` leaves one rule out.                                                                  *)
EXTENDS Integers, FiniteSets

CONSTANTS Workers, Waiters, Newcomers, KillsMax, Fault

Members == Workers \cup {"drainer"} \cup Waiters
Processes == Members \cup Newcomers
Mortal == (Workers \cup {"drainer"}) \cup Newcomers
Slots == 1..Cardinality(Members)
NoProcess == "none"

VARIABLES phase,        \* the high half of the state word
          closer,       \* its low half: <<slot, generation>>, or <<0, 0>>
          count, generation, lock,                  \* one of each per slot
          pc, slot, mine, place, seen, after, kills, cleaned

vars == <<phase, closer, count, generation, lock, pc, slot, mine, place, seen, after, kills, cleaned>>
shared == <<phase, closer, count, generation, lock, cleaned>>
locals == <<slot, mine, place, seen, after>>

Start(p) == IF p \in Workers THEN "E1"
            ELSE IF p \in Waiters THEN "W1"
            ELSE IF p = "drainer" THEN "D1" ELSE "J1"

Init == /\ phase = "RUNNING"
        /\ closer = <<0, 0>>
        /\ \E assigned \in [Members -> Slots]:
              /\ \A p, q \in Members: p # q => assigned[p] # assigned[q]
              /\ \A p \in Members, q \in Members:        \* one order is enough
                    (p \in Workers /\ q \notin Workers) => assigned[p] < assigned[q]
              /\ \A q \in Waiters: assigned["drainer"] < assigned[q]
              /\ slot = [p \in Processes |-> IF p \in Members THEN assigned[p] ELSE 0]
              /\ lock = [s \in Slots |-> CHOOSE p \in Members: assigned[p] = s]
        /\ count = [s \in Slots |-> 0]
        /\ generation = [s \in Slots |-> 1]
        /\ mine = [p \in Processes |-> 1]
        /\ pc = [p \in Processes |-> Start(p)]
        /\ place = [p \in Processes |-> 0]
        /\ seen = [p \in Processes |-> <<0, 0>>]
        /\ after = [p \in Processes |-> "Done"]
        /\ kills = 0
        /\ cleaned = 0

Me(p) == <<slot[p], mine[p]>>
Goto(p, where) == pc' = [pc EXCEPT ![p] = where]

(* A scan or a take-over stores where it returns to. *)
Call(p, where, back) == /\ pc' = [pc EXCEPT ![p] = where]
                        /\ after' = [after EXCEPT ![p] = back]
                        /\ UNCHANGED <<slot, mine, place, seen>>

E1(p) == /\ pc[p] = "E1"
         /\ Goto(p, IF phase = "RUNNING" THEN "E2" ELSE "Done")
         /\ UNCHANGED <<shared, locals, kills>>

E2(p) == /\ pc[p] = "E2"
         /\ count' = [count EXCEPT ![slot[p]] = @ + 1]
         /\ Goto(p, IF Fault = "no second check" THEN "Inside" ELSE "E3")
         /\ UNCHANGED <<phase, closer, generation, lock, cleaned, locals, kills>>

E3(p) == /\ pc[p] = "E3"
         /\ Goto(p, IF phase = "RUNNING" THEN "Inside" ELSE "X2 back")
         /\ UNCHANGED <<shared, locals, kills>>

Work(p) == /\ pc[p] = "Inside"
           /\ Goto(p, "X2")
           /\ UNCHANGED <<shared, locals, kills>>

X2(p) == /\ pc[p] \in {"X2", "X2 back"}
         /\ count' = [count EXCEPT ![slot[p]] = @ - 1]
         /\ Goto(p, IF count[slot[p]] = 1 /\ ~(Fault = "back-off does not scan" /\ pc[p] = "X2 back")
                    THEN "X3" ELSE "Done")
         /\ UNCHANGED <<phase, closer, generation, lock, cleaned, locals, kills>>

X3(p) == /\ pc[p] = "X3"
         /\ IF phase = "DRAINING" THEN Call(p, "C1", "Done")
                                  ELSE Goto(p, "Done") /\ UNCHANGED locals
         /\ UNCHANGED <<shared, kills>>

D1(p) == /\ pc[p] = "D1"
         /\ IF phase = "RUNNING" THEN phase' = "DRAINING" /\ Call(p, "C1", "Done")
                                 ELSE Goto(p, "Done") /\ UNCHANGED <<phase, locals>>
         /\ UNCHANGED <<closer, count, generation, lock, cleaned, kills>>

C1(p) == /\ pc[p] = "C1"
         /\ Goto(p, IF phase = "DRAINING" THEN "C2" ELSE after[p])
         /\ place' = [place EXCEPT ![p] = 1]
         /\ UNCHANGED <<shared, slot, mine, seen, after, kills>>

C2(p) == /\ pc[p] = "C2"
         /\ IF place[p] \notin Slots
            THEN Goto(p, "C4") /\ UNCHANGED place
            ELSE IF count[place[p]] = 0
            THEN place' = [place EXCEPT ![p] = @ + 1] /\ UNCHANGED pc
            ELSE Goto(p, IF place[p] = slot[p] THEN after[p] ELSE "C2 held") /\ UNCHANGED place
         /\ UNCHANGED <<shared, slot, mine, seen, after, kills>>

C2held(p) == /\ pc[p] = "C2 held"
             /\ IF lock[place[p]] # NoProcess \/ Fault = "scan counts dead processes"
                THEN Goto(p, after[p]) /\ UNCHANGED place
                ELSE Goto(p, "C2") /\ place' = [place EXCEPT ![p] = @ + 1]
             /\ UNCHANGED <<shared, slot, mine, seen, after, kills>>

C4(p) == /\ pc[p] = "C4"
         /\ IF phase = "DRAINING"
            THEN phase' = "CLOSING" /\ closer' = Me(p) /\ Goto(p, "C5")
            ELSE Goto(p, after[p]) /\ UNCHANGED <<phase, closer>>
         /\ UNCHANGED <<count, generation, lock, cleaned, locals, kills>>

C5(p) == /\ pc[p] = "C5"
         /\ cleaned' = cleaned + 1
         /\ Goto(p, "C6")
         /\ UNCHANGED <<phase, closer, count, generation, lock, locals, kills>>

C6(p) == /\ pc[p] = "C6"
         /\ phase' = IF phase = "CLOSING" /\ closer = Me(p) THEN "CLOSED" ELSE phase
         /\ Goto(p, after[p])
         /\ UNCHANGED <<closer, count, generation, lock, cleaned, locals, kills>>

T1(p) == /\ pc[p] = "T1"
         /\ seen' = [seen EXCEPT ![p] = closer]
         /\ Goto(p, IF phase # "CLOSING" \/ closer = Me(p) THEN after[p] ELSE "T3 generation")
         /\ UNCHANGED <<shared, slot, mine, place, after, kills>>

T3generation(p) == /\ pc[p] = "T3 generation"
                   /\ Goto(p, IF generation[seen[p][1]] = seen[p][2] /\ Fault # "take over from a live closer"
                              THEN "T3 held" ELSE "T4")
                   /\ UNCHANGED <<shared, locals, kills>>

T3held(p) == /\ pc[p] = "T3 held"
             /\ Goto(p, IF lock[seen[p][1]] # NoProcess THEN after[p] ELSE "T4")
             /\ UNCHANGED <<shared, locals, kills>>

T4(p) == /\ pc[p] = "T4"
         /\ IF phase = "CLOSING" /\ closer = seen[p]
            THEN closer' = Me(p) /\ Goto(p, "C5")
            ELSE Goto(p, after[p]) /\ UNCHANGED closer
         /\ UNCHANGED <<phase, count, generation, lock, cleaned, locals, kills>>

TryClose(p, back) == CASE phase = "DRAINING" -> Call(p, "C1", back)
                   [] phase = "CLOSING" -> Call(p, "T1", back)
                   [] OTHER -> Goto(p, back) /\ UNCHANGED locals

W1(p) == /\ pc[p] = "W1"
         /\ phase # "RUNNING"                       \* it sleeps until the phase changes
         /\ IF phase = "CLOSED" \/ Fault = "waiter does not try to close"
            THEN phase = "CLOSED" /\ Goto(p, "Done") /\ UNCHANGED locals
            ELSE TryClose(p, "W1")
         /\ UNCHANGED <<shared, kills>>

J1(p) == /\ pc[p] = "J1"
         /\ \E s \in Slots: /\ lock[s] = NoProcess
                            /\ lock' = [lock EXCEPT ![s] = p]
                            /\ slot' = [slot EXCEPT ![p] = s]
         /\ Goto(p, "J2")
         /\ UNCHANGED <<phase, closer, count, generation, cleaned, mine, place, seen, after, kills>>

J2(p) == /\ pc[p] = "J2"
         /\ count' = [count EXCEPT ![slot[p]] = 0]
         /\ Goto(p, "J3")
         /\ UNCHANGED <<phase, closer, generation, lock, cleaned, locals, kills>>

J3(p) == /\ pc[p] = "J3"
         /\ LET next == generation[slot[p]] + (IF Fault = "closer without generation" THEN 0 ELSE 1)
            IN /\ generation' = [generation EXCEPT ![slot[p]] = next]
               /\ mine' = [mine EXCEPT ![p] = next]
         /\ Goto(p, "J4")
         /\ UNCHANGED <<phase, closer, count, lock, cleaned, slot, place, seen, after, kills>>

J4(p) == /\ pc[p] = "J4"
         /\ TryClose(p, "E1")
         /\ UNCHANGED <<shared, kills>>

Step(p) == \/ E1(p) \/ E2(p) \/ E3(p) \/ Work(p) \/ X2(p) \/ X3(p) \/ D1(p)
           \/ C1(p) \/ C2(p) \/ C2held(p) \/ C4(p) \/ C5(p) \/ C6(p)
           \/ T1(p) \/ T3generation(p) \/ T3held(p) \/ T4(p) \/ W1(p)
           \/ J1(p) \/ J2(p) \/ J3(p) \/ J4(p)

Kill(p) == /\ kills < KillsMax
           /\ p \in Mortal
           /\ pc[p] \notin {"Done", "Dead"}
           /\ pc' = [pc EXCEPT ![p] = "Dead"]
           /\ lock' = [s \in Slots |-> IF lock[s] = p THEN NoProcess ELSE lock[s]]
           /\ kills' = kills + 1
           /\ UNCHANGED <<phase, closer, count, generation, cleaned, locals>>

Next == \E p \in Processes: Step(p) \/ Kill(p)

Spec == Init /\ [][Next]_vars /\ \A p \in Processes: WF_vars(Step(p))

-----------------------------------------------------------------------------
Order == [INIT |-> 0, RUNNING |-> 1, DRAINING |-> 2, CLOSING |-> 3, CLOSED |-> 4]

(* No live process is inside once the phase is CLOSING. *)
NoLiveProcessInside == phase \in {"CLOSING", "CLOSED"} => \A p \in Processes: pc[p] \notin {"Inside", "X2"}

(* Never two live cleanups at the same time; without a kill it runs at most once. *)
OneCleanup == /\ Cardinality({p \in Processes: pc[p] = "C5"}) <= 1
              /\ kills = 0 => cleaned <= 1

CleanedWhenClosed == phase = "CLOSED" => cleaned > 0

Forward == [][Order[phase'] >= Order[phase]]_phase

(* Once drained, it closes. *)
Closes == (phase = "DRAINING") ~> (phase = "CLOSED")
=============================================================================
