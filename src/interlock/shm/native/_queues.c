/* The queues of interlock.shm._core: ring.h, deque.h and task_table.h for Python.
 *
 * Rule 1: the fallbacks in ring.py, deque.py and task_table.py have the same methods and results; one suite tests all.
 * Rule 2: errors of Interlock are not created here: results are numbers and None, and the callers in Python raise.
 * Rule 3: no function waits or releases the GIL, which serializes the threads that share the owner's end of a queue.
 *         On free-threaded builds the callers in Python hold a lock instead.
 */
#include "extension.h"

#include "deque.h"
#include "ring.h"
#include "task_table.h"

static PyObject *allocate_object(PyTypeObject *type)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    return allocate(type, 0);
}

static int check_arguments(const char *method, Py_ssize_t given, Py_ssize_t wanted)
{
    if (given == wanted)
        return 0;
    PyErr_Format(PyExc_TypeError, "%s takes %zd arguments (%zd given)", method, wanted, given);
    return -1;
}

static int check_power_of_two(Py_ssize_t value, Py_ssize_t least)
{
    if (value >= least && (value & (value - 1)) == 0)
        return 0;
    PyErr_Format(PyExc_ValueError, "%zd is not a power of two of at least %zd", value, least);
    return -1;
}

/* Reads an id; check it with id_failed. 0 is not a valid id, but not an error here. */
static uint64_t parse_id(PyObject *object) { return PyLong_AsUnsignedLongLong(object); }

static int id_failed(uint64_t id) { return id == UINT64_MAX && PyErr_Occurred(); }

/* ---- Ring ------------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    il_buffer memory;
    il_ring *ring;
    uint64_t bytes;
    const uint64_t *asleep;
} Ring;

enum { PUSHED_NOTIFY = 2 }; /* in addition to the results of ring.h: published, and the consumer sleeps */

static PyObject *ring_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"buffer", "offset", "ring_bytes", "asleep", NULL};
    PyObject *buffer;
    Py_ssize_t offset, bytes, asleep;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "Onnn:Ring", names, &buffer, &offset, &bytes, &asleep) ||
        check_power_of_two(bytes, IL_RING_BYTES_MIN) < 0)
        return NULL;
    Ring *self = (Ring *)allocate_object(type);
    if (self == NULL)
        return NULL;
    self->bytes = (uint64_t)bytes;
    if (il_buffer_acquire(&self->memory, buffer) < 0 ||
        (self->ring = il_buffer_at(&self->memory, offset, (Py_ssize_t)sizeof(il_ring) + bytes, IL_LINE)) == NULL ||
        (self->asleep = il_buffer_at(&self->memory, asleep, sizeof(uint64_t), sizeof(uint64_t))) == NULL) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void ring_dealloc(PyObject *self)
{
    il_buffer_release(&((Ring *)self)->memory);
    il_free_object(self);
}

PyDoc_STRVAR(ring_push_doc, "push($self, payload, /)\n--\n\n"
                            "Publish a message. Returns 2 (published, the consumer sleeps), 1 (published), 0 (full), "
                            "-1 (corrupt) or -2 (too large).");
static PyObject *ring_push(PyObject *object, PyObject *payload)
{
    Ring *self = (Ring *)object;
    Py_buffer view;
    if (PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    long status = il_ring_push(self->ring, self->bytes, view.buf, (uint64_t)view.len);
    PyBuffer_Release(&view);
    if (status == IL_RING_DONE && il_load(self->asleep))
        status = PUSHED_NOTIFY;
    return PyLong_FromLong(status);
}

PyDoc_STRVAR(ring_pop_many_doc, "pop_many($self, limit, /)\n--\n\n"
                                "Return up to `limit` messages, oldest first; None if the ring is corrupt.");
static PyObject *ring_pop_many(PyObject *object, PyObject *limit)
{
    Ring *self = (Ring *)object;
    Py_ssize_t left = PyLong_AsSsize_t(limit);
    if (left == -1 && PyErr_Occurred())
        return NULL;
    PyObject *messages = PyList_New(0);
    if (messages == NULL)
        return NULL;
    uint64_t head, tail;
    const unsigned char *payload = NULL;
    uint32_t n = 0;
    int status = il_ring_readable(self->ring, self->bytes, &head, &tail);
    while (status == IL_RING_DONE && left-- > 0) {
        uint64_t next = head;
        status = il_ring_next(self->ring, self->bytes, &next, tail, &payload, &n);
        if (status != IL_RING_DONE)
            break;
        PyObject *message = PyBytes_FromStringAndSize((const char *)payload, (Py_ssize_t)n);
        if (message == NULL || PyList_Append(messages, message) < 0) { /* head stays: the messages were not received */
            Py_XDECREF(message);
            Py_DECREF(messages);
            return NULL;
        }
        Py_DECREF(message);
        head = next;
    }
    if (status == IL_RING_CORRUPT && PyList_Size(messages) == 0) {
        Py_DECREF(messages);
        Py_RETURN_NONE;
    }
    il_ring_release(self->ring, head);
    return messages;
}

PyDoc_STRVAR(ring_has_messages_doc, "has_messages($self, /)\n--\n\nReturn whether a message is published.");
static PyObject *ring_has_messages(PyObject *self, PyObject *Py_UNUSED(none))
{
    return PyBool_FromLong(il_ring_has_messages(((Ring *)self)->ring));
}

static PyMethodDef ring_methods[] = {
    {"push", ring_push, METH_O, ring_push_doc},
    {"pop_many", ring_pop_many, METH_O, ring_pop_many_doc},
    {"has_messages", ring_has_messages, METH_NOARGS, ring_has_messages_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot ring_slots[] = {
    {Py_tp_doc, "The messages of one producer to one consumer."},
    {Py_tp_new, ring_new},
    {Py_tp_dealloc, ring_dealloc},
    {Py_tp_methods, ring_methods},
    {0, NULL},
};

static PyType_Spec ring_spec = {"interlock.shm._core.Ring", sizeof(Ring), 0, Py_TPFLAGS_DEFAULT, ring_slots};

/* ---- Deque ------------------------------------------------------------------------------------------------------ */

typedef struct {
    PyObject_HEAD
    il_buffer memory;
    il_deque *deque;
    uint64_t capacity;
    uint64_t *claimed_id;
} Deque;

static PyObject *deque_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"buffer", "offset", "capacity", "claimed_id", NULL};
    PyObject *buffer;
    Py_ssize_t offset, capacity, claimed_id;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "Onnn:Deque", names, &buffer, &offset, &capacity, &claimed_id) ||
        check_power_of_two(capacity, 1) < 0)
        return NULL;
    if (capacity > PY_SSIZE_T_MAX / 16) {
        PyErr_SetString(PyExc_ValueError, "the capacity is larger than any region");
        return NULL;
    }
    Deque *self = (Deque *)allocate_object(type);
    if (self == NULL)
        return NULL;
    self->capacity = (uint64_t)capacity;
    if (il_buffer_acquire(&self->memory, buffer) < 0 ||
        (self->deque = il_buffer_at(&self->memory, offset, (Py_ssize_t)sizeof(il_deque) + 8 * capacity, IL_LINE)) ==
            NULL ||
        (self->claimed_id = il_buffer_at(&self->memory, claimed_id, sizeof(uint64_t), sizeof(uint64_t))) == NULL) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void deque_dealloc(PyObject *self)
{
    il_buffer_release(&((Deque *)self)->memory);
    il_free_object(self);
}

PyDoc_STRVAR(deque_push_doc, "push($self, id, /)\n--\n\nAdd an id; False if full. Owner only.");
static PyObject *deque_push(PyObject *object, PyObject *item)
{
    Deque *self = (Deque *)object;
    uint64_t id = parse_id(item);
    if (id_failed(id))
        return NULL;
    return PyBool_FromLong(il_deque_push(self->deque, self->capacity, id) == IL_DEQUE_DONE);
}

PyDoc_STRVAR(deque_pop_doc, "pop($self, /)\n--\n\nReturn the newest id, or 0. Owner only.");
static PyObject *deque_pop(PyObject *object, PyObject *Py_UNUSED(none))
{
    Deque *self = (Deque *)object;
    uint64_t id = 0;
    int status = il_deque_pop(self->deque, self->capacity, self->claimed_id, &id);
    return PyLong_FromUnsignedLongLong(status == IL_DEQUE_DONE ? id : 0u);
}

PyDoc_STRVAR(deque_steal_doc, "steal($self, /)\n--\n\nReturn the oldest id, 0 if empty, -1 if another was faster.");
static PyObject *deque_steal(PyObject *object, PyObject *Py_UNUSED(none))
{
    Deque *self = (Deque *)object;
    uint64_t id = 0;
    int status = il_deque_steal(self->deque, self->capacity, self->claimed_id, &id);
    return status == IL_DEQUE_DONE ? PyLong_FromUnsignedLongLong(id) : PyLong_FromLong(status);
}

PyDoc_STRVAR(deque_size_doc, "size($self, /)\n--\n\nReturn the number of ids.");
static PyObject *deque_size(PyObject *object, PyObject *Py_UNUSED(none))
{
    return PyLong_FromUnsignedLongLong(il_deque_size(((Deque *)object)->deque));
}

PyDoc_STRVAR(deque_reset_doc, "reset($self, /)\n--\n\nRepair an empty deque after the death of its owner.");
static PyObject *deque_reset(PyObject *object, PyObject *Py_UNUSED(none))
{
    il_deque_reset(((Deque *)object)->deque);
    Py_RETURN_NONE;
}

static PyMethodDef deque_methods[] = {
    {"push", deque_push, METH_O, deque_push_doc},
    {"pop", deque_pop, METH_NOARGS, deque_pop_doc},
    {"steal", deque_steal, METH_NOARGS, deque_steal_doc},
    {"size", deque_size, METH_NOARGS, deque_size_doc},
    {"reset", deque_reset, METH_NOARGS, deque_reset_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot deque_slots[] = {
    {Py_tp_doc, "Ids that one owner pushes and pops and thieves steal."},
    {Py_tp_new, deque_new},
    {Py_tp_dealloc, deque_dealloc},
    {Py_tp_methods, deque_methods},
    {0, NULL},
};

static PyType_Spec deque_spec = {"interlock.shm._core.Deque", sizeof(Deque), 0, Py_TPFLAGS_DEFAULT, deque_slots};

/* ---- TaskTable ------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    il_buffer memory;
    il_task_table table;
} TaskTable;

static int table_bind(TaskTable *self, Py_ssize_t wakeups, Py_ssize_t members, Py_ssize_t deques, Py_ssize_t cells)
{
    il_task_table *table = &self->table;
    Py_ssize_t member_bytes = (Py_ssize_t)(table->member_count * sizeof(il_member));
    Py_ssize_t deque_bytes = (Py_ssize_t)(table->member_count * table->priorities * table->deque_bytes);
    Py_ssize_t cell_bytes = (Py_ssize_t)(il_table_cell_count(table) * table->cell_bytes);
    if ((table->wakeups = il_buffer_at(&self->memory, wakeups, sizeof(uint64_t), sizeof(uint64_t))) == NULL ||
        (table->members = il_buffer_at(&self->memory, members, member_bytes, IL_LINE)) == NULL ||
        (table->deques = il_buffer_at(&self->memory, deques, deque_bytes, IL_LINE)) == NULL ||
        (table->cells = il_buffer_at(&self->memory, cells, cell_bytes, IL_LINE)) == NULL)
        return -1;
    return 0;
}

static PyObject *table_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"buffer", "wakeups", "members", "deques", "cells", "member_count", "priorities", "capacity",
                            "range", "payload_max", "result_max", "claims_max", "member", NULL};
    PyObject *buffer;
    Py_ssize_t wakeups, members, deques, cells, member_count, priorities, capacity, range, payload, result, claims,
        member;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "Onnnnnnnnnnnn:TaskTable", names, &buffer, &wakeups, &members,
                                     &deques, &cells, &member_count, &priorities, &capacity, &range, &payload,
                                     &result, &claims, &member) ||
        check_power_of_two(capacity, 8) < 0)
        return NULL;
    if (member_count < 1 || member_count > (Py_ssize_t)IL_MEMBERS_MAX || member < 0 ||
        member >= member_count || priorities < 1 || priorities > (Py_ssize_t)IL_PRIORITIES_MAX || range < 1 ||
        range > 1 << 20 || payload < 0 || result < 0 ||
        payload > 1 << 30 || result > 1 << 30 || payload % 64 || result % 64 || claims < 1 || claims > 255 ||
        capacity > 1 << 24) {
        PyErr_SetString(PyExc_ValueError, "invalid sizes of a pool");
        return NULL;
    }
    TaskTable *self = (TaskTable *)allocate_object(type);
    if (self == NULL)
        return NULL;
    self->table.member_count = (uint32_t)member_count;
    self->table.priorities = (uint32_t)priorities;
    self->table.capacity = (uint64_t)capacity;
    self->table.deque_bytes = sizeof(il_deque) + 8u * (uint64_t)capacity;
    self->table.range = (uint64_t)range;
    self->table.payload_max = (uint64_t)payload;
    self->table.result_max = (uint64_t)result;
    self->table.cell_bytes = sizeof(il_cell) + (uint64_t)payload + (uint64_t)result;
    self->table.claims_max = (uint32_t)claims;
    self->table.self = (uint32_t)member;
    if (il_buffer_acquire(&self->memory, buffer) < 0 || table_bind(self, wakeups, members, deques, cells) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void table_dealloc(PyObject *self)
{
    il_buffer_release(&((TaskTable *)self)->memory);
    il_free_object(self);
}

PyDoc_STRVAR(table_submit_doc, "submit($self, payload, priority, detached, /)\n--\n\n"
                              "Queue a task and return its id; 0 if the pool is full, -1 if the payload is too large.");
static PyObject *table_submit(PyObject *object, PyObject *const *args, Py_ssize_t given)
{
    il_task_table *table = &((TaskTable *)object)->table;
    if (check_arguments("submit", given, 3) < 0)
        return NULL;
    long priority = PyLong_AsLong(args[1]);
    int detached = PyObject_IsTrue(args[2]);
    if ((priority == -1 && PyErr_Occurred()) || detached < 0)
        return NULL;
    if (priority < 0 || priority >= (long)table->priorities) {
        PyErr_SetString(PyExc_ValueError, "unknown priority");
        return NULL;
    }
    Py_buffer view;
    if (PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    uint64_t id = 0;
    int too_large = (uint64_t)view.len > table->payload_max, status = IL_TABLE_NONE;
    if (!too_large)
        status = il_table_submit(table, view.buf, (uint64_t)view.len, (uint32_t)priority, detached, &id);
    PyBuffer_Release(&view);
    return too_large ? PyLong_FromLong(-1) : PyLong_FromUnsignedLongLong(status == IL_TABLE_OK ? id : 0u);
}

PyDoc_STRVAR(table_claim_doc, "claim($self, /)\n--\n\n"
                             "Claim a task and return its id; 0 if there is none, -1 if other members were faster.");
static PyObject *table_claim(PyObject *object, PyObject *Py_UNUSED(none))
{
    uint64_t id = 0;
    int status = il_table_claim(&((TaskTable *)object)->table, &id);
    return status == IL_TABLE_OK ? PyLong_FromUnsignedLongLong(id) : PyLong_FromLong(status);
}

PyDoc_STRVAR(table_payload_doc, "payload($self, id, /)\n--\n\nReturn the payload of a claimed task.");
static PyObject *table_payload(PyObject *object, PyObject *item)
{
    il_task_table *table = &((TaskTable *)object)->table;
    uint64_t id = parse_id(item);
    if (id_failed(id))
        return NULL;
    il_cell *cell = il_table_cell_of(table, id);
    uint64_t n = cell == NULL ? 0u : il_cell_payload_bytes(cell);
    if (cell == NULL || n > table->payload_max)
        Py_RETURN_NONE;
    return PyBytes_FromStringAndSize((const char *)cell->bytes, (Py_ssize_t)n);
}

PyDoc_STRVAR(table_is_detached_doc, "is_detached($self, id, /)\n--\n\nReturn whether no caller awaits a claimed task.");
static PyObject *table_is_detached(PyObject *object, PyObject *item)
{
    uint64_t id = parse_id(item);
    if (id_failed(id))
        return NULL;
    il_cell *cell = il_table_cell_of(&((TaskTable *)object)->table, id);
    return PyBool_FromLong(cell != NULL && il_cell_detached(cell));
}

PyDoc_STRVAR(table_finish_doc, "finish($self, id, state, result, /)\n--\n\n"
                              "Write the result and finish a claimed task; 1, 0 (not claimed) or -1 (too large).");
static PyObject *table_finish(PyObject *object, PyObject *const *args, Py_ssize_t given)
{
    il_task_table *table = &((TaskTable *)object)->table;
    if (check_arguments("finish", given, 3) < 0)
        return NULL;
    uint64_t id = parse_id(args[0]);
    if (id_failed(id))
        return NULL;
    long state = PyLong_AsLong(args[1]);
    if (state == -1 && PyErr_Occurred())
        return NULL;
    if (state != IL_DONE && state != IL_FAILED) {
        PyErr_SetString(PyExc_ValueError, "the state must be DONE or FAILED");
        return NULL;
    }
    Py_buffer view;
    if (PyObject_GetBuffer(args[2], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    il_cell *cell = il_table_cell_of(table, id);
    int status = IL_TABLE_NONE;
    if ((uint64_t)view.len > table->result_max) {
        status = -1;
    } else if (cell != NULL) {
        uint64_t word = il_load(&cell->word);
        if (il_word_state(word) == IL_CLAIMED && il_word_member(word) == table->self &&
            il_word_generation(word) == il_id_generation(id)) {
            if (view.len)
                memcpy(cell->bytes + table->payload_max, view.buf, (size_t)view.len);
            il_store_own(&cell->result_bytes, (uint64_t)view.len);
            status = il_table_finish(table, id, (uint32_t)state);
        }
    }
    PyBuffer_Release(&view);
    return PyLong_FromLong(status);
}

PyDoc_STRVAR(table_finished_doc, "finished($self, /)\n--\n\n"
                                "Return the finished tasks of this member's range: (id, state, result).");
static PyObject *table_finished(PyObject *object, PyObject *Py_UNUSED(none))
{
    il_task_table *table = &((TaskTable *)object)->table;
    PyObject *found = PyList_New(0);
    uint64_t index = 0, id = 0;
    uint32_t state = 0;
    while (found != NULL && il_table_next_finished(table, &index, &id, &state) == IL_TABLE_OK) {
        il_cell *cell = il_table_cell_of(table, id);
        uint64_t n = cell == NULL || state == IL_POISONED ? 0u : il_load_own(&cell->result_bytes);
        if (cell == NULL)
            continue;
        if (n > table->result_max)
            n = 0u; /* a result is never empty, so the reader in Python reports corruption */
        PyObject *result = PyBytes_FromStringAndSize((const char *)cell->bytes + table->payload_max, (Py_ssize_t)n);
        PyObject *row = result == NULL ? NULL : Py_BuildValue("(KIN)", (unsigned long long)id, state, result);
        if (row == NULL || PyList_Append(found, row) < 0)
            Py_CLEAR(found);
        Py_XDECREF(row);
    }
    return found;
}

PyDoc_STRVAR(table_release_doc, "release($self, id, /)\n--\n\nFree the cell of a finished task.");
static PyObject *table_release(PyObject *object, PyObject *item)
{
    uint64_t id = parse_id(item);
    if (id_failed(id))
        return NULL;
    return PyBool_FromLong(il_table_release(&((TaskTable *)object)->table, id) == IL_TABLE_OK);
}

PyDoc_STRVAR(table_state_doc, "state($self, id, /)\n--\n\n"
                             "Return (state, member, claims) of a task; None if the id is stale.");
static PyObject *table_state(PyObject *object, PyObject *item)
{
    uint64_t id = parse_id(item);
    if (id_failed(id))
        return NULL;
    il_cell *cell = il_table_cell_of(&((TaskTable *)object)->table, id);
    uint64_t word = cell == NULL ? 0u : il_load(&cell->word);
    if (cell == NULL || il_word_generation(word) != il_id_generation(id))
        Py_RETURN_NONE;
    return Py_BuildValue("(III)", il_word_state(word), il_word_member(word), il_word_claims(word));
}

PyDoc_STRVAR(table_recover_doc, "recover($self, member, /)\n--\n\n"
                               "Queue the tasks of a dead member again; the caller holds its lock byte. "
                               "Returns (complete, found, given up).");
static PyObject *table_recover(PyObject *object, PyObject *member)
{
    il_task_table *table = &((TaskTable *)object)->table;
    unsigned long dead = PyLong_AsUnsignedLong(member);
    if (dead == (unsigned long)-1 && PyErr_Occurred())
        return NULL;
    if (dead >= table->member_count) {
        PyErr_SetString(PyExc_ValueError, "unknown member");
        return NULL;
    }
    uint32_t found = 0, given_up = 0;
    int status = il_table_recover(table, (uint32_t)dead, &found, &given_up);
    return Py_BuildValue("(NII)", PyBool_FromLong(status == IL_TABLE_OK), found, given_up);
}

PyDoc_STRVAR(table_has_queued_doc, "has_queued($self, /)\n--\n\nReturn whether any deque has a task.");
static PyObject *table_has_queued(PyObject *object, PyObject *Py_UNUSED(none))
{
    return PyBool_FromLong(il_table_has_queued(&((TaskTable *)object)->table));
}

PyDoc_STRVAR(table_wake_worker_doc, "wake_worker($self, /)\n--\n\nWake one sleeping worker; False if none sleeps.");
static PyObject *table_wake_worker(PyObject *object, PyObject *Py_UNUSED(none))
{
    return PyBool_FromLong(il_table_wake_worker(&((TaskTable *)object)->table));
}

static PyMethodDef table_methods[] = {
    {"submit", (PyCFunction)(void (*)(void))table_submit, METH_FASTCALL, table_submit_doc},
    {"claim", table_claim, METH_NOARGS, table_claim_doc},
    {"payload", table_payload, METH_O, table_payload_doc},
    {"is_detached", table_is_detached, METH_O, table_is_detached_doc},
    {"finish", (PyCFunction)(void (*)(void))table_finish, METH_FASTCALL, table_finish_doc},
    {"finished", table_finished, METH_NOARGS, table_finished_doc},
    {"release", table_release, METH_O, table_release_doc},
    {"state", table_state, METH_O, table_state_doc},
    {"recover", table_recover, METH_O, table_recover_doc},
    {"has_queued", table_has_queued, METH_NOARGS, table_has_queued_doc},
    {"wake_worker", table_wake_worker, METH_NOARGS, table_wake_worker_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot table_slots[] = {
    {Py_tp_doc, "Tasks in cells, and their ids in the deques of members."},
    {Py_tp_new, table_new},
    {Py_tp_dealloc, table_dealloc},
    {Py_tp_methods, table_methods},
    {0, NULL},
};

static PyType_Spec table_spec = {
    "interlock.shm._core.TaskTable", sizeof(TaskTable), 0, Py_TPFLAGS_DEFAULT, table_slots,
};

/* ---- The types in the module ----------------------------------------------------------------------------------- */

int il_add_queue_types(PyObject *module)
{
    PyType_Spec *specs[] = {&ring_spec, &deque_spec, &table_spec};
    for (size_t each = 0; each < sizeof specs / sizeof specs[0]; each++) {
        PyObject *type = PyType_FromModuleAndSpec(module, specs[each], NULL);
        if (type == NULL)
            return -1;
        int added = PyModule_AddType(module, (PyTypeObject *)type);
        Py_DECREF(type);
        if (added < 0)
            return -1;
    }
    return 0;
}
