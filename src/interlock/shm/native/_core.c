/* The extension module interlock.shm._core: Python's view of core.h.
 *
 * Rule 1: the fallbacks (locked.py, door.py) have the same methods and answers; one suite runs over all of them.
 * Rule 2: the GIL is released around every wait and nothing else; a signal's handler runs before the next look.
 * Rule 3: no error of Interlock is made here: a wrong call goes to the Python function that was given for it.
 */
#include "glue.h"

#include <pthread.h>
#include <unistd.h>

/* ---- The process: known without a system call, and right in a forked child ----------------------------------- */

static long process_id;

static void after_fork(void) { process_id = (long)getpid(); }

static PyObject *module_process_id(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    return PyLong_FromLong(process_id);
}

/* ---- Words: 64-bit operations at offsets of a region ----------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    il_lease lease;
} Words;

static PyObject *words_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"buffer", NULL};
    PyObject *buffer;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O:Words", names, &buffer))
        return NULL;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Words *self = (Words *)allocate(type, 0);
    if (self == NULL)
        return NULL;
    if (il_lease_take(&self->lease, buffer) < 0) {
        il_drop(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void words_dealloc(PyObject *object)
{
    il_lease_give_back(&((Words *)object)->lease);
    il_free(object);
}

static int expect_arguments(const char *method, Py_ssize_t given, Py_ssize_t wanted)
{
    if (given == wanted)
        return 0;
    PyErr_Format(PyExc_TypeError, "%s takes %zd arguments (%zd given)", method, wanted, given);
    return -1;
}

static uint64_t *word_at(Words *self, PyObject *offset)
{
    Py_ssize_t at = PyLong_AsSsize_t(offset);
    if (at == -1 && PyErr_Occurred())
        return NULL;
    return il_lease_at(&self->lease, at, sizeof(uint64_t), sizeof(uint64_t));
}

static uint32_t *half_at(Words *self, PyObject *offset)
{
    Py_ssize_t at = PyLong_AsSsize_t(offset);
    if (at == -1 && PyErr_Occurred())
        return NULL;
    return il_lease_at(&self->lease, at, sizeof(uint32_t), sizeof(uint32_t));
}

/* An integer of 0 .. 2^64-1; anything else is an exception and -1. */
static int word_value(PyObject *object, uint64_t *value)
{
    *value = PyLong_AsUnsignedLongLong(object);
    return *value == UINT64_MAX && PyErr_Occurred() ? -1 : 0;
}

PyDoc_STRVAR(words_load_doc, "load($self, offset, /)\n--\n\nThe word at an offset.");
static PyObject *words_load(PyObject *self, PyObject *offset)
{
    uint64_t *word = word_at((Words *)self, offset);
    return word == NULL ? NULL : PyLong_FromUnsignedLongLong(il_load(word));
}

PyDoc_STRVAR(words_store_doc, "store($self, offset, value, /)\n--\n\nPut a value into the word.");
static PyObject *words_store(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    uint64_t value, *word;
    if (expect_arguments("store", given, 2) < 0 || (word = word_at((Words *)self, args[0])) == NULL ||
        word_value(args[1], &value) < 0)
        return NULL;
    il_store(word, value);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(words_swap_doc, "swap($self, offset, expected, desired, /)\n--\n\n"
                             "Compare and swap; gives what the word held, which is `expected` when it was swapped.");
static PyObject *words_swap(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    uint64_t seen, desired, *word;
    if (expect_arguments("swap", given, 3) < 0 || (word = word_at((Words *)self, args[0])) == NULL ||
        word_value(args[1], &seen) < 0 || word_value(args[2], &desired) < 0)
        return NULL;
    (void)il_cas(word, &seen, desired);
    return PyLong_FromUnsignedLongLong(seen);
}

PyDoc_STRVAR(words_add_doc, "add($self, offset, delta, /)\n--\n\nAdd modulo 2**64; gives what the word held before.");
static PyObject *words_add(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    uint64_t *word;
    if (expect_arguments("add", given, 2) < 0 || (word = word_at((Words *)self, args[0])) == NULL)
        return NULL;
    uint64_t delta = PyLong_AsUnsignedLongLongMask(args[1]);
    if (delta == UINT64_MAX && PyErr_Occurred())
        return NULL;
    return PyLong_FromUnsignedLongLong(il_add(word, delta));
}

PyDoc_STRVAR(words_wait_doc, "wait($self, half, expected, timeout, /)\n--\n\n"
                             "Sleep while the 32-bit half holds `expected`, at most so many seconds and never above one.");
static PyObject *words_wait(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    uint32_t *half;
    if (expect_arguments("wait", given, 3) < 0 || (half = half_at((Words *)self, args[0])) == NULL)
        return NULL;
    uint32_t expected = (uint32_t)PyLong_AsUnsignedLongMask(args[1]);
    double timeout = PyFloat_AsDouble(args[2]);
    if (PyErr_Occurred())
        return NULL;
    if (!(timeout < 1.0)) /* also what is no number */
        timeout = 1.0;
    int answer;
    Py_BEGIN_ALLOW_THREADS
    answer = il_futex_wait(half, expected, (int64_t)(timeout * 1e9));
    Py_END_ALLOW_THREADS
    if (answer == EINTR && PyErr_CheckSignals() < 0)
        return NULL;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(words_wake_doc, "wake($self, half, /)\n--\n\nWake every sleeper on a 32-bit half.");
static PyObject *words_wake(PyObject *self, PyObject *offset)
{
    uint32_t *half = half_at((Words *)self, offset);
    if (half == NULL)
        return NULL;
    il_futex_wake(half);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(words_occupied_doc, "occupied($self, counts, slots, start, /)\n--\n\n"
                                 "The first slot from `start` on whose count is not zero; `slots` when there is none.");
static PyObject *words_occupied(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    if (expect_arguments("occupied", given, 3) < 0)
        return NULL;
    Py_ssize_t at = PyLong_AsSsize_t(args[0]), slots = PyLong_AsSsize_t(args[1]), start = PyLong_AsSsize_t(args[2]);
    if (PyErr_Occurred())
        return NULL;
    if (slots < 0 || slots > 4095 || start < 0) {
        PyErr_SetString(PyExc_ValueError, "a region has 0 to 4095 slots");
        return NULL;
    }
    uint64_t *counts = il_lease_at(&((Words *)self)->lease, at, slots * (Py_ssize_t)IL_LINE, sizeof(uint64_t));
    if (counts == NULL)
        return NULL;
    return PyLong_FromSsize_t(start >= slots ? slots : il_life_occupied(counts, (uint32_t)slots, (uint32_t)start));
}

static PyMethodDef words_methods[] = {
    {"load", words_load, METH_O, words_load_doc},
    {"store", (PyCFunction)(void (*)(void))words_store, METH_FASTCALL, words_store_doc},
    {"swap", (PyCFunction)(void (*)(void))words_swap, METH_FASTCALL, words_swap_doc},
    {"add", (PyCFunction)(void (*)(void))words_add, METH_FASTCALL, words_add_doc},
    {"wait", (PyCFunction)(void (*)(void))words_wait, METH_FASTCALL, words_wait_doc},
    {"wake", words_wake, METH_O, words_wake_doc},
    {"occupied", (PyCFunction)(void (*)(void))words_occupied, METH_FASTCALL, words_occupied_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot words_slots[] = {
    {Py_tp_doc, "Sequentially consistent operations on the 64-bit words of a region."},
    {Py_tp_new, words_new},
    {Py_tp_dealloc, words_dealloc},
    {Py_tp_methods, words_methods},
    {0, NULL},
};

static PyType_Spec words_spec = {"interlock.shm._core.Words", sizeof(Words), 0, Py_TPFLAGS_DEFAULT, words_slots};

/* ---- Door: who comes in and goes out, through a gate or on the line of a slot --------------------------------- */

typedef struct {
    PyTypeObject *permit_type;
} State;

typedef struct {
    PyObject_HEAD
    il_lease lease;
    uint64_t *word;  /* the gate, or the state word */
    uint64_t *count; /* the count of the slot; NULL for a gate */
    long pid;        /* who joined */
    PyTypeObject *permit_type;
    PyObject *identity; /* (epoch, slot, generation) */
    PyObject *refuse;   /* called with a reason; raises */
    PyObject *last;     /* called when an exit or a refused enter has something to close; gives a bool */
    PyObject *aside;    /* called with a permit; gives the coroutine that leaves outside of the event loop */
} Door;

typedef struct {
    PyObject_HEAD
    Door *door;
    long pid;
    int used;
} Permit;

/* Reasons to refuse, beyond those of enum il_answer; door.py has the sentences. */
enum { REASON_USED = 10, REASON_FORKED = 11, REASON_FOREIGN = 12, REASON_LEFT = 13 };

#define NOBODY (-1l) /* the pid of a door that was shut */

static PyObject *door_refuse(Door *self, int reason)
{
    PyObject *number = PyLong_FromLong(reason);
    if (number == NULL)
        return NULL;
    PyObject *answer = PyObject_CallFunctionObjArgs(self->refuse, number, NULL);
    Py_DECREF(number);
    if (answer != NULL) {
        Py_DECREF(answer);
        PyErr_SetString(PyExc_SystemError, "a refusal must raise");
    }
    return NULL;
}

/* The slot of a door belongs to the process that joined, until it leaves. 0, or -1 with an exception. */
static int door_check_joined(Door *self)
{
    if (self->count == NULL || self->pid == process_id)
        return 0;
    return door_refuse(self, self->pid == NOBODY ? REASON_LEFT : REASON_FORKED), -1;
}

/* Gives an enum il_answer, or -1 with an exception: also when the closing after a refused enter raised. */
static int door_come_in(Door *self)
{
    if (door_check_joined(self) < 0)
        return -1;
    enum il_answer answer = self->count == NULL ? il_gate_enter(self->word) : il_life_enter(self->word, self->count);
    if (answer == IL_FULL)
        return door_refuse(self, IL_FULL), -1;
    if (answer == IL_LAST) {
        PyObject *closed = PyObject_CallFunctionObjArgs(self->last, NULL);
        if (closed == NULL)
            return -1;
        Py_DECREF(closed);
        return IL_REFUSED;
    }
    return answer;
}

static PyObject *door_go_out(Door *self)
{
    enum il_answer answer = self->count == NULL ? il_gate_exit(self->word) : il_life_exit(self->word, self->count);
    if (answer == IL_LEFT)
        Py_RETURN_FALSE;
    if (answer == IL_LAST)
        return PyObject_CallFunctionObjArgs(self->last, NULL);
    return door_refuse(self, answer);
}

/* X1. A permit leaves once, through its own door, in the process that got it. 0, or -1 with an exception. */
static int permit_spend(Permit *permit)
{
    if (permit->pid != process_id)
        return door_refuse(permit->door, REASON_FORKED), -1;
    if (__atomic_exchange_n(&permit->used, 1, __ATOMIC_SEQ_CST) != 0)
        return door_refuse(permit->door, REASON_USED), -1;
    return 0;
}

static PyObject *door_new_permit(Door *self)
{
    Permit *permit = PyObject_New(Permit, self->permit_type);
    if (permit == NULL) {
        PyObject *left = door_go_out(self); /* nobody would ever leave for a permit that was not made */
        if (left == NULL)
            PyErr_Clear();
        Py_XDECREF(left);
        return PyErr_NoMemory();
    }
    permit->door = il_share(self);
    permit->pid = process_id;
    permit->used = 0;
    return (PyObject *)permit;
}

/* The calls of the hot path take no arguments, but by METH_FASTCALL: CPython 3.11 calls such functions by a quicker way
 * than METH_NOARGS (a bare pair measured 36 ns before and 20 after; `make bench` shows it). */
#define FAST(function) ((PyCFunction)(void (*)(void))(function))

static int takes_none(Py_ssize_t given)
{
    if (given == 0)
        return 0;
    PyErr_Format(PyExc_TypeError, "takes no arguments (%zd given)", given);
    return -1;
}

PyDoc_STRVAR(door_try_enter_doc, "try_enter($self, /)\n--\n\nA permit while running, else None.");
static PyObject *door_try_enter(PyObject *self, PyObject *const *Py_UNUSED(arguments), Py_ssize_t given)
{
    if (takes_none(given) < 0)
        return NULL;
    int answer = door_come_in((Door *)self);
    if (answer < 0)
        return NULL;
    if (answer != IL_ENTERED)
        Py_RETURN_NONE;
    return door_new_permit((Door *)self);
}

PyDoc_STRVAR(door_enter_doc, "enter($self, /)\n--\n\nA permit while running; otherwise the refusal raises.");
static PyObject *door_enter(PyObject *self, PyObject *const *Py_UNUSED(arguments), Py_ssize_t given)
{
    if (takes_none(given) < 0)
        return NULL;
    int answer = door_come_in((Door *)self);
    if (answer < 0)
        return NULL;
    if (answer != IL_ENTERED)
        return door_refuse((Door *)self, IL_REFUSED);
    return door_new_permit((Door *)self);
}

PyDoc_STRVAR(door_exit_doc, "exit($self, permit, /)\n--\n\nGive a permit back; True when this caller closed.");
static PyObject *door_exit(PyObject *object, PyObject *permit)
{
    Door *self = (Door *)object;
    if (Py_TYPE(permit) != self->permit_type || ((Permit *)permit)->door != self)
        return door_refuse(self, REASON_FOREIGN);
    if (permit_spend((Permit *)permit) < 0)
        return NULL;
    return door_go_out(self);
}

PyDoc_STRVAR(door_come_doc, "come($self, /)\n--\n\nEnter without a permit; True when inside. Pairs with `go`.");
static PyObject *door_come(PyObject *self, PyObject *const *Py_UNUSED(arguments), Py_ssize_t given)
{
    if (takes_none(given) < 0)
        return NULL;
    int answer = door_come_in((Door *)self);
    return answer < 0 ? NULL : PyBool_FromLong(answer == IL_ENTERED);
}

PyDoc_STRVAR(door_go_doc, "go($self, /)\n--\n\nLeave without a permit; True when this caller closed.");
static PyObject *door_go(PyObject *object, PyObject *const *Py_UNUSED(arguments), Py_ssize_t given)
{
    if (takes_none(given) < 0)
        return NULL;
    return door_check_joined((Door *)object) < 0 ? NULL : door_go_out((Door *)object);
}

PyDoc_STRVAR(door_shut_doc, "shut($self, /)\n--\n\nRefuse everybody from now on: its owner leaves.");
static PyObject *door_shut(PyObject *self, PyObject *Py_UNUSED(none))
{
    ((Door *)self)->pid = NOBODY;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(door_begin_doc, "begin($self, phase, /)\n--\n\nMove INIT to a phase; True when this caller did.");
static PyObject *door_begin(PyObject *self, PyObject *phase)
{
    long wanted = PyLong_AsLong(phase);
    if (wanted == -1 && PyErr_Occurred())
        return NULL;
    return PyBool_FromLong(il_begin(((Door *)self)->word, (enum il_phase)wanted));
}

PyDoc_STRVAR(door_drain_doc, "drain($self, /)\n--\n\nThe phase this caller moved RUNNING to; INIT when it did not.");
static PyObject *door_drain(PyObject *object, PyObject *Py_UNUSED(none))
{
    Door *self = (Door *)object;
    if (self->count == NULL)
        return PyLong_FromLong(il_gate_drain(self->word));
    return PyLong_FromLong(il_life_drain(self->word) ? IL_DRAINING : IL_INIT);
}

static PyObject *door_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"buffer", "word", "count", "identity", "refuse", "last", "aside", NULL};
    PyObject *buffer, *identity, *refuse, *last, *aside;
    Py_ssize_t word, count;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OnnO!OOO:Door", names, &buffer, &word, &count, &PyTuple_Type,
                                     &identity, &refuse, &last, &aside))
        return NULL;
    State *state = PyType_GetModuleState(type);
    if (state == NULL)
        return NULL;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Door *self = (Door *)allocate(type, 0);
    if (self == NULL)
        return NULL;
    self->permit_type = il_share(state->permit_type);
    self->identity = il_share(identity);
    self->refuse = il_share(refuse);
    self->last = il_share(last);
    self->aside = il_share(aside);
    self->pid = process_id;
    if (il_lease_take(&self->lease, buffer) < 0 ||
        (self->word = il_lease_at(&self->lease, word, sizeof(uint64_t), sizeof(uint64_t))) == NULL ||
        (count >= 0 &&
         (self->count = il_lease_at(&self->lease, count, sizeof(uint64_t), sizeof(uint64_t))) == NULL)) {
        il_drop(self);
        return NULL;
    }
    return (PyObject *)self;
}

static int door_traverse(PyObject *object, visitproc visit, void *arg)
{
    Door *self = (Door *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->permit_type);
    Py_VISIT(self->identity);
    Py_VISIT(self->refuse);
    Py_VISIT(self->last);
    Py_VISIT(self->aside);
    return 0;
}

/* The callables make the only cycles; a permit may still leave through a cleared door, so they are kept until the end
 * by whoever holds the permit: the collector clears only what nobody reaches. */
static int door_clear(PyObject *object)
{
    Door *self = (Door *)object;
    Py_CLEAR(self->identity);
    Py_CLEAR(self->refuse);
    Py_CLEAR(self->last);
    Py_CLEAR(self->aside);
    return 0;
}

static void door_dealloc(PyObject *object)
{
    Door *self = (Door *)object;
    PyObject_GC_UnTrack(object);
    (void)door_clear(object);
    Py_CLEAR(self->permit_type);
    il_lease_give_back(&self->lease);
    il_free(object);
}

static PyMethodDef door_methods[] = {
    {"try_enter", FAST(door_try_enter), METH_FASTCALL, door_try_enter_doc},
    {"enter", FAST(door_enter), METH_FASTCALL, door_enter_doc},
    {"exit", door_exit, METH_O, door_exit_doc},
    {"come", FAST(door_come), METH_FASTCALL, door_come_doc},
    {"go", FAST(door_go), METH_FASTCALL, door_go_doc},
    {"shut", door_shut, METH_NOARGS, door_shut_doc},
    {"begin", door_begin, METH_O, door_begin_doc},
    {"drain", door_drain, METH_NOARGS, door_drain_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot door_slots[] = {
    {Py_tp_doc, "Enter and exit of one participant, through a gate or on the line of its slot."},
    {Py_tp_new, door_new},
    {Py_tp_dealloc, door_dealloc},
    {Py_tp_traverse, door_traverse},
    {Py_tp_clear, door_clear},
    {Py_tp_methods, door_methods},
    {0, NULL},
};

static PyType_Spec door_spec = {
    "interlock.shm._core.Door", sizeof(Door), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, door_slots,
};

/* ---- Permit: the proof of having entered, good for one exit --------------------------------------------------- */

static PyObject *permit_enter(PyObject *self, PyObject *Py_UNUSED(none))
{
    return il_share(self);
}

static PyObject *permit_exit(PyObject *object, PyObject *const *Py_UNUSED(args), Py_ssize_t Py_UNUSED(given))
{
    Permit *self = (Permit *)object;
    if (permit_spend(self) < 0)
        return NULL;
    PyObject *left = door_go_out(self->door);
    if (left == NULL)
        return NULL;
    Py_DECREF(left);
    Py_RETURN_NONE; /* never swallows the exception of the block */
}

/* `async with`: the entering has been done; the leaving may have to clean up, which the event loop must not wait for. */
static PyObject *permit_aenter(PyObject *self, PyObject *Py_UNUSED(none))
{
    return PyObject_CallFunctionObjArgs(((Permit *)self)->door->aside, self, Py_False, NULL);
}

static PyObject *permit_aexit(PyObject *self, PyObject *const *Py_UNUSED(args), Py_ssize_t Py_UNUSED(given))
{
    return PyObject_CallFunctionObjArgs(((Permit *)self)->door->aside, self, Py_True, NULL);
}

static PyObject *permit_identity(PyObject *self, void *index)
{
    PyObject *value = PyTuple_GetItem(((Permit *)self)->door->identity, (Py_ssize_t)(intptr_t)index);
    Py_XINCREF(value);
    return value;
}

static PyObject *permit_pid(PyObject *self, void *Py_UNUSED(none)) { return PyLong_FromLong(((Permit *)self)->pid); }

static PyObject *permit_used(PyObject *self, void *Py_UNUSED(none))
{
    return PyBool_FromLong(__atomic_load_n(&((Permit *)self)->used, __ATOMIC_SEQ_CST));
}

static PyObject *permit_repr(PyObject *self)
{
    Permit *permit = (Permit *)self;
    return PyUnicode_FromFormat("<Permit %R pid=%ld%s>", permit->door->identity, permit->pid,
                                permit->used ? " used" : "");
}

static void permit_dealloc(PyObject *self)
{
    Door *door = ((Permit *)self)->door;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_Free(self);
    il_drop(type);
    il_drop(door);
}

static PyMethodDef permit_methods[] = {
    {"__enter__", permit_enter, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)(void (*)(void))permit_exit, METH_FASTCALL, NULL},
    {"__aenter__", permit_aenter, METH_NOARGS, NULL},
    {"__aexit__", (PyCFunction)(void (*)(void))permit_aexit, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef permit_getset[] = {
    {"epoch", permit_identity, NULL, "the region's epoch", (void *)(intptr_t)0},
    {"slot", permit_identity, NULL, "the slot of the process that entered; 0 for a gate", (void *)(intptr_t)1},
    {"generation", permit_identity, NULL, "which owner of that slot it was", (void *)(intptr_t)2},
    {"pid", permit_pid, NULL, "the process that entered", NULL},
    {"used", permit_used, NULL, "whether it has been given back", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot permit_slots[] = {
    {Py_tp_doc, "The proof of having entered; good for one exit, in the process that got it."},
    {Py_tp_dealloc, permit_dealloc},
    {Py_tp_repr, permit_repr},
    {Py_tp_methods, permit_methods},
    {Py_tp_getset, permit_getset},
    {0, NULL},
};

static PyType_Spec permit_spec = {
    "interlock.shm._core.Permit", sizeof(Permit), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, permit_slots,
};

/* ---- The module ------------------------------------------------------------------------------------------------- */

/* Gives a borrowed type that the module keeps, or NULL with an exception. */
static PyTypeObject *add_type(PyObject *module, PyType_Spec *spec)
{
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    if (type == NULL)
        return NULL;
    int added = PyModule_AddType(module, (PyTypeObject *)type);
    Py_DECREF(type);
    return added < 0 ? NULL : (PyTypeObject *)type;
}

static int module_exec(PyObject *module)
{
    static int hooked; /* once per process, whatever the number of interpreters; a second hook would do no harm */
    process_id = (long)getpid();
    if (!hooked) {
        if (pthread_atfork(NULL, NULL, after_fork) != 0) {
            PyErr_NoMemory();
            return -1;
        }
        hooked = 1;
    }
    State *state = PyModule_GetState(module);
    PyTypeObject *permit_type = add_type(module, &permit_spec);
    if (permit_type == NULL)
        return -1;
    state->permit_type = il_share(permit_type);
    if (add_type(module, &words_spec) == NULL || add_type(module, &door_spec) == NULL)
        return -1;
    return il_queues_add(module);
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    State *state = PyModule_GetState(module);
    Py_VISIT(state->permit_type);
    return 0;
}

static int module_clear(PyObject *module)
{
    State *state = PyModule_GetState(module);
    Py_CLEAR(state->permit_type);
    return 0;
}

static PyMethodDef module_methods[] = {
    {"process_id", module_process_id, METH_NOARGS, "process_id()\n--\n\nThis process, without a system call."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
#if defined(Py_mod_multiple_interpreters)
    {Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED},
#endif
#if defined(Py_mod_gil)
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef module_definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "interlock.shm._core",
    .m_doc = "Atomic words, gates and queues in shared memory: the C core.",
    .m_size = sizeof(State),
    .m_methods = module_methods,
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
};

PyMODINIT_FUNC PyInit__core(void) { return PyModuleDef_Init(&module_definition); }
