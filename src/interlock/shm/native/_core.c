/* The extension module interlock.shm._core: core.h for Python.
 *
 * Rule 1: the fallbacks (fallback.py, permits.py) have the same methods and results; one suite tests all of them.
 * Rule 2: the GIL is released around every wait and nowhere else; a signal handler runs before the next load.
 * Rule 3: errors of Interlock are not created here: a Python function, passed to the constructor, raises them.
 */
#include "extension.h"

#include <pthread.h>
#include <unistd.h>

/* ---- The process id, without a system call, updated in a forked child ------------------------------------------ */

static long process_id;

static void after_fork(void) { process_id = (long)getpid(); }

static PyObject *module_process_id(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    return PyLong_FromLong(process_id);
}

/* ---- Words: 64-bit operations at offsets of a region ----------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    il_buffer memory;
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
    if (il_buffer_acquire(&self->memory, buffer) < 0) {
        il_drop_reference(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void words_dealloc(PyObject *object)
{
    il_buffer_release(&((Words *)object)->memory);
    il_free_object(object);
}

static int check_arguments(const char *method, Py_ssize_t given, Py_ssize_t wanted)
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
    return il_buffer_at(&self->memory, at, sizeof(uint64_t), sizeof(uint64_t));
}

static uint32_t *half_at(Words *self, PyObject *offset)
{
    Py_ssize_t at = PyLong_AsSsize_t(offset);
    if (at == -1 && PyErr_Occurred())
        return NULL;
    return il_buffer_at(&self->memory, at, sizeof(uint32_t), sizeof(uint32_t));
}

/* Reads an integer of 0 .. 2^64-1. Returns 0, or -1 with an exception. */
static int word_value(PyObject *object, uint64_t *value)
{
    *value = PyLong_AsUnsignedLongLong(object);
    return *value == UINT64_MAX && PyErr_Occurred() ? -1 : 0;
}

PyDoc_STRVAR(words_load_doc, "load($self, offset, /)\n--\n\nReturn the word at an offset.");
static PyObject *words_load(PyObject *self, PyObject *offset)
{
    uint64_t *word = word_at((Words *)self, offset);
    return word == NULL ? NULL : PyLong_FromUnsignedLongLong(il_load(word));
}

PyDoc_STRVAR(words_store_doc, "store($self, offset, value, /)\n--\n\nSet the word.");
static PyObject *words_store(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    uint64_t value, *word;
    if (check_arguments("store", given, 2) < 0 || (word = word_at((Words *)self, args[0])) == NULL ||
        word_value(args[1], &value) < 0)
        return NULL;
    il_store(word, value);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(words_swap_doc, "swap($self, offset, expected, desired, /)\n--\n\n"
                             "Compare and swap. Returns the previous value: `expected` if the swap succeeded.");
static PyObject *words_swap(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    uint64_t seen, desired, *word;
    if (check_arguments("swap", given, 3) < 0 || (word = word_at((Words *)self, args[0])) == NULL ||
        word_value(args[1], &seen) < 0 || word_value(args[2], &desired) < 0)
        return NULL;
    (void)il_cas(word, &seen, desired);
    return PyLong_FromUnsignedLongLong(seen);
}

PyDoc_STRVAR(words_add_doc, "add($self, offset, delta, /)\n--\n\nAdd modulo 2**64. Returns the previous value.");
static PyObject *words_add(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    uint64_t *word;
    if (check_arguments("add", given, 2) < 0 || (word = word_at((Words *)self, args[0])) == NULL)
        return NULL;
    uint64_t delta = PyLong_AsUnsignedLongLongMask(args[1]);
    if (delta == UINT64_MAX && PyErr_Occurred())
        return NULL;
    return PyLong_FromUnsignedLongLong(il_add(word, delta));
}

PyDoc_STRVAR(words_wait_doc, "wait($self, half, expected, timeout, /)\n--\n\n"
                             "Sleep while the 32-bit half is `expected`, at most `timeout` seconds and one second.");
static PyObject *words_wait(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    uint32_t *half;
    if (check_arguments("wait", given, 3) < 0 || (half = half_at((Words *)self, args[0])) == NULL)
        return NULL;
    uint32_t expected = (uint32_t)PyLong_AsUnsignedLongMask(args[1]);
    double timeout = PyFloat_AsDouble(args[2]);
    if (PyErr_Occurred())
        return NULL;
    if (!(timeout < 1.0)) /* also NaN */
        timeout = 1.0;
    int status;
    Py_BEGIN_ALLOW_THREADS
    status = il_futex_wait(half, expected, (int64_t)(timeout * 1e9));
    Py_END_ALLOW_THREADS
    if (status == EINTR && PyErr_CheckSignals() < 0)
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

PyDoc_STRVAR(words_find_occupied_doc, "find_occupied($self, counts, slots, start, /)\n--\n\n"
                                 "Return the first slot from `start` on whose count is not zero, or `slots`.");
static PyObject *words_find_occupied(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    if (check_arguments("find_occupied", given, 3) < 0)
        return NULL;
    Py_ssize_t at = PyLong_AsSsize_t(args[0]), slots = PyLong_AsSsize_t(args[1]), start = PyLong_AsSsize_t(args[2]);
    if (PyErr_Occurred())
        return NULL;
    if (slots < 0 || slots > 4095 || start < 0) {
        PyErr_SetString(PyExc_ValueError, "a region has 0 to 4095 slots");
        return NULL;
    }
    uint64_t *counts = il_buffer_at(&((Words *)self)->memory, at, slots * (Py_ssize_t)IL_LINE, sizeof(uint64_t));
    if (counts == NULL)
        return NULL;
    if (start >= slots)
        return PyLong_FromSsize_t(slots);
    return PyLong_FromUnsignedLong(il_lifecycle_find_occupied(counts, (uint32_t)slots, (uint32_t)start));
}

static PyMethodDef words_methods[] = {
    {"load", words_load, METH_O, words_load_doc},
    {"store", (PyCFunction)(void (*)(void))words_store, METH_FASTCALL, words_store_doc},
    {"swap", (PyCFunction)(void (*)(void))words_swap, METH_FASTCALL, words_swap_doc},
    {"add", (PyCFunction)(void (*)(void))words_add, METH_FASTCALL, words_add_doc},
    {"wait", (PyCFunction)(void (*)(void))words_wait, METH_FASTCALL, words_wait_doc},
    {"wake", words_wake, METH_O, words_wake_doc},
    {"find_occupied", (PyCFunction)(void (*)(void))words_find_occupied, METH_FASTCALL, words_find_occupied_doc},
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

/* ---- PermitCounter: enter and exit, of a gate or on the line of a slot ------------------------------------------- */

typedef struct {
    PyTypeObject *permit_type;
} State;

typedef struct {
    PyObject_HEAD
    il_buffer memory;
    uint64_t *word;  /* the gate, or the state word */
    uint64_t *count; /* the count of the slot; NULL for a gate */
    long pid;        /* the process that joined */
    PyTypeObject *permit_type;
    PyObject *identity;     /* (epoch, slot, generation) */
    PyObject *refuse;       /* called with a reason; raises */
    PyObject *on_last_exit; /* called if an exit or a refused enter may have been the last one; returns a bool */
    PyObject *async_exit;   /* called with a permit; returns the coroutines of `async with` */
} PermitCounter;

typedef struct {
    PyObject_HEAD
    PermitCounter *counter;
    long pid;
    int used;
} Permit;

/* Reasons to refuse, in addition to enum il_result; permits.py has the messages. */
enum { REASON_USED = 10, REASON_FORKED = 11, REASON_FOREIGN = 12, REASON_LEFT = 13 };

#define NO_PROCESS (-1l) /* the pid of a closed counter */

static PyObject *counter_refuse(PermitCounter *self, int reason)
{
    PyObject *number = PyLong_FromLong(reason);
    if (number == NULL)
        return NULL;
    PyObject *returned = PyObject_CallFunctionObjArgs(self->refuse, number, NULL);
    Py_DECREF(number);
    if (returned != NULL) {
        Py_DECREF(returned);
        PyErr_SetString(PyExc_SystemError, "refuse() must raise");
    }
    return NULL;
}

/* The slot of a counter belongs to the process that joined, until it leaves. Returns 0, or -1 with an exception. */
static int counter_check_joined(PermitCounter *self)
{
    if (self->count == NULL || self->pid == process_id)
        return 0;
    return counter_refuse(self, self->pid == NO_PROCESS ? REASON_LEFT : REASON_FORKED), -1;
}

/* Returns an enum il_result, or -1 with an exception, which may come from on_last_exit after a refused enter. */
static int counter_count_enter(PermitCounter *self)
{
    if (counter_check_joined(self) < 0)
        return -1;
    enum il_result result =
        self->count == NULL ? il_gate_enter(self->word) : il_lifecycle_enter(self->word, self->count);
    if (result == IL_FULL)
        return counter_refuse(self, IL_FULL), -1;
    if (result == IL_LAST_EXIT) {
        PyObject *closed = PyObject_CallFunctionObjArgs(self->on_last_exit, NULL);
        if (closed == NULL)
            return -1;
        Py_DECREF(closed);
        return IL_REFUSED;
    }
    return result;
}

static PyObject *counter_count_exit(PermitCounter *self)
{
    enum il_result result = self->count == NULL ? il_gate_exit(self->word) : il_lifecycle_exit(self->word, self->count);
    if (result == IL_EXITED)
        Py_RETURN_FALSE;
    if (result == IL_LAST_EXIT)
        return PyObject_CallFunctionObjArgs(self->on_last_exit, NULL);
    return counter_refuse(self, result);
}

/* X1. A permit is valid for one exit, in the process that got it. Returns 0, or -1 with an exception. */
static int permit_mark_used(Permit *permit)
{
    if (permit->pid != process_id)
        return counter_refuse(permit->counter, REASON_FORKED), -1;
    if (__atomic_exchange_n(&permit->used, 1, __ATOMIC_SEQ_CST) != 0)
        return counter_refuse(permit->counter, REASON_USED), -1;
    return 0;
}

static PyObject *counter_new_permit(PermitCounter *self)
{
    Permit *permit = PyObject_New(Permit, self->permit_type);
    if (permit == NULL) {
        PyObject *left = counter_count_exit(self); /* there is no permit to exit with, so exit here */
        if (left == NULL)
            PyErr_Clear();
        Py_XDECREF(left);
        return PyErr_NoMemory();
    }
    permit->counter = il_new_reference(self);
    permit->pid = process_id;
    permit->used = 0;
    return (PyObject *)permit;
}

/* The functions of the hot path take no arguments, but use METH_FASTCALL, which CPython 3.11 calls faster than
 * METH_NOARGS (enter and exit took 36 ns before and 20 ns after; `make bench` measures it). */
#define FAST(function) ((PyCFunction)(void (*)(void))(function))

static int check_no_arguments(Py_ssize_t given)
{
    if (given == 0)
        return 0;
    PyErr_Format(PyExc_TypeError, "expected no arguments, got %zd", given);
    return -1;
}

PyDoc_STRVAR(counter_try_enter_doc, "try_enter($self, /)\n--\n\nReturn a permit while running, else None.");
static PyObject *counter_try_enter(PyObject *self, PyObject *const *Py_UNUSED(arguments), Py_ssize_t given)
{
    if (check_no_arguments(given) < 0)
        return NULL;
    int result = counter_count_enter((PermitCounter *)self);
    if (result < 0)
        return NULL;
    if (result != IL_ENTERED)
        Py_RETURN_NONE;
    return counter_new_permit((PermitCounter *)self);
}

PyDoc_STRVAR(counter_enter_doc, "enter($self, /)\n--\n\nReturn a permit while running; raise otherwise.");
static PyObject *counter_enter(PyObject *self, PyObject *const *Py_UNUSED(arguments), Py_ssize_t given)
{
    if (check_no_arguments(given) < 0)
        return NULL;
    int result = counter_count_enter((PermitCounter *)self);
    if (result < 0)
        return NULL;
    if (result != IL_ENTERED)
        return counter_refuse((PermitCounter *)self, IL_REFUSED);
    return counter_new_permit((PermitCounter *)self);
}

PyDoc_STRVAR(counter_exit_doc, "exit($self, permit, /)\n--\n\nReturn a permit. True if this call closed.");
static PyObject *counter_exit(PyObject *object, PyObject *permit)
{
    PermitCounter *self = (PermitCounter *)object;
    if (Py_TYPE(permit) != self->permit_type || ((Permit *)permit)->counter != self)
        return counter_refuse(self, REASON_FOREIGN);
    if (permit_mark_used((Permit *)permit) < 0)
        return NULL;
    return counter_count_exit(self);
}

PyDoc_STRVAR(counter_enter_unchecked_doc, "enter_unchecked($self, /)\n--\n\n"
                                          "Enter without a permit. True if the caller is inside.");
static PyObject *counter_enter_unchecked(PyObject *self, PyObject *const *Py_UNUSED(arguments), Py_ssize_t given)
{
    if (check_no_arguments(given) < 0)
        return NULL;
    int result = counter_count_enter((PermitCounter *)self);
    return result < 0 ? NULL : PyBool_FromLong(result == IL_ENTERED);
}

PyDoc_STRVAR(counter_exit_unchecked_doc, "exit_unchecked($self, /)\n--\n\n"
                                         "Exit without a permit. True if this call closed.");
static PyObject *counter_exit_unchecked(PyObject *object, PyObject *const *Py_UNUSED(arguments), Py_ssize_t given)
{
    if (check_no_arguments(given) < 0)
        return NULL;
    return counter_check_joined((PermitCounter *)object) < 0 ? NULL : counter_count_exit((PermitCounter *)object);
}

PyDoc_STRVAR(counter_close_doc, "close($self, /)\n--\n\nRefuse all later calls, because the owner has left.");
static PyObject *counter_close(PyObject *self, PyObject *Py_UNUSED(none))
{
    ((PermitCounter *)self)->pid = NO_PROCESS;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(counter_start_doc, "start($self, phase, /)\n--\n\nMove INIT to a phase. True if this call did.");
static PyObject *counter_start(PyObject *self, PyObject *phase)
{
    long wanted = PyLong_AsLong(phase);
    if (wanted == -1 && PyErr_Occurred())
        return NULL;
    return PyBool_FromLong(il_start(((PermitCounter *)self)->word, (enum il_phase)wanted));
}

PyDoc_STRVAR(counter_drain_doc, "drain($self, /)\n--\n\n"
                                   "Return the phase to which this call moved RUNNING; INIT if it was not running.");
static PyObject *counter_drain(PyObject *object, PyObject *Py_UNUSED(none))
{
    PermitCounter *self = (PermitCounter *)object;
    if (self->count == NULL)
        return PyLong_FromLong(il_gate_drain(self->word));
    return PyLong_FromLong(il_lifecycle_drain(self->word) ? IL_DRAINING : IL_INIT);
}

static PyObject *counter_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"buffer", "word", "count", "identity", "refuse", "on_last_exit", "async_exit", NULL};
    PyObject *buffer, *identity, *refuse, *on_last_exit, *async_exit;
    Py_ssize_t word, count;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OnnO!OOO:PermitCounter", names, &buffer, &word, &count,
                                     &PyTuple_Type, &identity, &refuse, &on_last_exit, &async_exit))
        return NULL;
    State *state = PyType_GetModuleState(type);
    if (state == NULL)
        return NULL;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    PermitCounter *self = (PermitCounter *)allocate(type, 0);
    if (self == NULL)
        return NULL;
    self->permit_type = il_new_reference(state->permit_type);
    self->identity = il_new_reference(identity);
    self->refuse = il_new_reference(refuse);
    self->on_last_exit = il_new_reference(on_last_exit);
    self->async_exit = il_new_reference(async_exit);
    self->pid = process_id;
    if (il_buffer_acquire(&self->memory, buffer) < 0 ||
        (self->word = il_buffer_at(&self->memory, word, sizeof(uint64_t), sizeof(uint64_t))) == NULL ||
        (count >= 0 &&
         (self->count = il_buffer_at(&self->memory, count, sizeof(uint64_t), sizeof(uint64_t))) == NULL)) {
        il_drop_reference(self);
        return NULL;
    }
    return (PyObject *)self;
}

static int counter_traverse(PyObject *object, visitproc visit, void *arg)
{
    PermitCounter *self = (PermitCounter *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->permit_type);
    Py_VISIT(self->identity);
    Py_VISIT(self->refuse);
    Py_VISIT(self->on_last_exit);
    Py_VISIT(self->async_exit);
    return 0;
}

/* The callables make the only reference cycles. A permit holds a reference to its counter, so the collector does not
 * clear a counter while a reachable permit can still exit through it. */
static int counter_clear(PyObject *object)
{
    PermitCounter *self = (PermitCounter *)object;
    Py_CLEAR(self->identity);
    Py_CLEAR(self->refuse);
    Py_CLEAR(self->on_last_exit);
    Py_CLEAR(self->async_exit);
    return 0;
}

static void counter_dealloc(PyObject *object)
{
    PermitCounter *self = (PermitCounter *)object;
    PyObject_GC_UnTrack(object);
    (void)counter_clear(object);
    Py_CLEAR(self->permit_type);
    il_buffer_release(&self->memory);
    il_free_object(object);
}

static PyMethodDef counter_methods[] = {
    {"try_enter", FAST(counter_try_enter), METH_FASTCALL, counter_try_enter_doc},
    {"enter", FAST(counter_enter), METH_FASTCALL, counter_enter_doc},
    {"exit", counter_exit, METH_O, counter_exit_doc},
    {"enter_unchecked", FAST(counter_enter_unchecked), METH_FASTCALL, counter_enter_unchecked_doc},
    {"exit_unchecked", FAST(counter_exit_unchecked), METH_FASTCALL, counter_exit_unchecked_doc},
    {"close", counter_close, METH_NOARGS, counter_close_doc},
    {"start", counter_start, METH_O, counter_start_doc},
    {"drain", counter_drain, METH_NOARGS, counter_drain_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot counter_slots[] = {
    {Py_tp_doc, "Enter and exit of one participant, of a gate or on the line of its slot."},
    {Py_tp_new, counter_new},
    {Py_tp_dealloc, counter_dealloc},
    {Py_tp_traverse, counter_traverse},
    {Py_tp_clear, counter_clear},
    {Py_tp_methods, counter_methods},
    {0, NULL},
};

static PyType_Spec counter_spec = {
    "interlock.shm._core.PermitCounter",
    sizeof(PermitCounter),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    counter_slots,
};

/* ---- Permit: returned by enter, valid for one exit --------------------------------------------------------------- */

static PyObject *permit_enter(PyObject *self, PyObject *Py_UNUSED(none))
{
    return il_new_reference(self);
}

static PyObject *permit_exit(PyObject *object, PyObject *const *Py_UNUSED(args), Py_ssize_t Py_UNUSED(given))
{
    Permit *self = (Permit *)object;
    if (permit_mark_used(self) < 0)
        return NULL;
    PyObject *left = counter_count_exit(self->counter);
    if (left == NULL)
        return NULL;
    Py_DECREF(left);
    Py_RETURN_NONE; /* never suppresses the exception of the block */
}

/* `async with`: the caller has entered already; the exit may run a cleanup, which must not block the event loop. */
static PyObject *permit_aenter(PyObject *self, PyObject *Py_UNUSED(none))
{
    return PyObject_CallFunctionObjArgs(((Permit *)self)->counter->async_exit, self, Py_False, NULL);
}

static PyObject *permit_aexit(PyObject *self, PyObject *const *Py_UNUSED(args), Py_ssize_t Py_UNUSED(given))
{
    return PyObject_CallFunctionObjArgs(((Permit *)self)->counter->async_exit, self, Py_True, NULL);
}

static PyObject *permit_identity(PyObject *self, void *index)
{
    PyObject *value = PyTuple_GetItem(((Permit *)self)->counter->identity, (Py_ssize_t)(intptr_t)index);
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
    return PyUnicode_FromFormat("<Permit %R pid=%ld%s>", permit->counter->identity, permit->pid,
                                permit->used ? " used" : "");
}

static void permit_dealloc(PyObject *self)
{
    PermitCounter *counter = ((Permit *)self)->counter;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_Free(self);
    il_drop_reference(type);
    il_drop_reference(counter);
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
    {"generation", permit_identity, NULL, "the generation of the owner of that slot", (void *)(intptr_t)2},
    {"pid", permit_pid, NULL, "the process that entered", NULL},
    {"used", permit_used, NULL, "whether its exit has happened", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot permit_slots[] = {
    {Py_tp_doc, "Returned by enter; valid for one exit, in the process that got it."},
    {Py_tp_dealloc, permit_dealloc},
    {Py_tp_repr, permit_repr},
    {Py_tp_methods, permit_methods},
    {Py_tp_getset, permit_getset},
    {0, NULL},
};

static PyType_Spec permit_spec = {
    "interlock.shm._core.Permit",
    sizeof(Permit),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    permit_slots,
};

/* ---- The module ------------------------------------------------------------------------------------------------- */

/* Returns a borrowed reference to the type, which the module owns, or NULL with an exception. */
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
    static int hooked; /* once per process, for all interpreters; a second hook would do no harm */
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
    state->permit_type = il_new_reference(permit_type);
    if (add_type(module, &words_spec) == NULL || add_type(module, &counter_spec) == NULL)
        return -1;
    return il_add_queue_types(module);
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
    {"process_id", module_process_id, METH_NOARGS,
     "process_id()\n--\n\nReturn the id of this process, without a system call."},
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
