/* The part of interlock.shm._core that holds queues: Python's view of lanes.h, deque.h and slab.h.
 *
 * Rule 1: the fallbacks in lane.py, deque.py and slab.py have the same methods and answers; one suite runs over all.
 * Rule 2: no error of Interlock is made here: answers are numbers and None, and the callers in Python say what to do.
 * Rule 3: nothing here waits, and the GIL is never released: between threads of one process it orders the owner's end
 *         of a queue. On free-threaded builds the callers in Python hold a lock instead.
 */
#include "glue.h"

#include "deque.h"
#include "lanes.h"
#include "slab.h"

static PyObject *allocated(PyTypeObject *type)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    return allocate(type, 0);
}

static int argument_count(const char *method, Py_ssize_t given, Py_ssize_t wanted)
{
    if (given == wanted)
        return 0;
    PyErr_Format(PyExc_TypeError, "%s takes %zd arguments (%zd given)", method, wanted, given);
    return -1;
}

static int power_of_two(Py_ssize_t value, Py_ssize_t least)
{
    if (value >= least && (value & (value - 1)) == 0)
        return 0;
    PyErr_Format(PyExc_ValueError, "%zd is not a power of two of at least %zd", value, least);
    return -1;
}

/* An id, or 0 with an exception; 0 itself is no id, but no exception either. */
static uint64_t id_value(PyObject *object) { return PyLong_AsUnsignedLongLong(object); }

static int id_failed(uint64_t id) { return id == UINT64_MAX && PyErr_Occurred(); }

/* ---- Lane ------------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    il_lease lease;
    il_lane *lane;
    uint64_t bytes;
    const uint64_t *asleep;
} Lane;

enum { PUSHED_RING = 2 }; /* beyond the answers of lanes.h: published, and the consumer sleeps */

static PyObject *lane_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"buffer", "offset", "ring_bytes", "asleep", NULL};
    PyObject *buffer;
    Py_ssize_t offset, bytes, asleep;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "Onnn:Lane", names, &buffer, &offset, &bytes, &asleep) ||
        power_of_two(bytes, IL_LANE_RING_MIN) < 0)
        return NULL;
    Lane *self = (Lane *)allocated(type);
    if (self == NULL)
        return NULL;
    self->bytes = (uint64_t)bytes;
    if (il_lease_take(&self->lease, buffer) < 0 ||
        (self->lane = il_lease_at(&self->lease, offset, (Py_ssize_t)sizeof(il_lane) + bytes, IL_LINE)) == NULL ||
        (self->asleep = il_lease_at(&self->lease, asleep, sizeof(uint64_t), sizeof(uint64_t))) == NULL) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void lane_dealloc(PyObject *self)
{
    il_lease_give_back(&((Lane *)self)->lease);
    il_free(self);
}

PyDoc_STRVAR(lane_push_doc, "push($self, payload, /)\n--\n\n"
                            "Publish a message: 2 published and the consumer sleeps, 1 published, 0 full, -1 corrupt, "
                            "-2 too large.");
static PyObject *lane_push(PyObject *object, PyObject *payload)
{
    Lane *self = (Lane *)object;
    Py_buffer view;
    if (PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    long answer = il_lane_push(self->lane, self->bytes, view.buf, (uint64_t)view.len);
    PyBuffer_Release(&view);
    if (answer == IL_LANE_DONE && il_load(self->asleep))
        answer = PUSHED_RING;
    return PyLong_FromLong(answer);
}

PyDoc_STRVAR(lane_pop_many_doc, "pop_many($self, limit, /)\n--\n\n"
                                "Up to `limit` messages, oldest first; None when the lane is corrupt.");
static PyObject *lane_pop_many(PyObject *object, PyObject *limit)
{
    Lane *self = (Lane *)object;
    Py_ssize_t left = PyLong_AsSsize_t(limit);
    if (left == -1 && PyErr_Occurred())
        return NULL;
    PyObject *messages = PyList_New(0);
    if (messages == NULL)
        return NULL;
    uint64_t head, tail;
    const unsigned char *payload = NULL;
    uint32_t n = 0;
    int answer = il_lane_begin(self->lane, self->bytes, &head, &tail);
    while (answer == IL_LANE_DONE && left-- > 0) {
        uint64_t next = head;
        answer = il_lane_next(self->lane, self->bytes, &next, tail, &payload, &n);
        if (answer != IL_LANE_DONE)
            break;
        PyObject *message = PyBytes_FromStringAndSize((const char *)payload, (Py_ssize_t)n);
        if (message == NULL || PyList_Append(messages, message) < 0) { /* nothing is taken: head stays */
            Py_XDECREF(message);
            Py_DECREF(messages);
            return NULL;
        }
        Py_DECREF(message);
        head = next;
    }
    if (answer == IL_LANE_CORRUPT && PyList_Size(messages) == 0) {
        Py_DECREF(messages);
        Py_RETURN_NONE;
    }
    il_lane_finish(self->lane, head);
    return messages;
}

PyDoc_STRVAR(lane_waiting_doc, "waiting($self, /)\n--\n\nWhether a message is published and not yet taken.");
static PyObject *lane_waiting(PyObject *self, PyObject *Py_UNUSED(none))
{
    return PyBool_FromLong(il_lane_waiting(((Lane *)self)->lane));
}

static PyMethodDef lane_methods[] = {
    {"push", lane_push, METH_O, lane_push_doc},
    {"pop_many", lane_pop_many, METH_O, lane_pop_many_doc},
    {"waiting", lane_waiting, METH_NOARGS, lane_waiting_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot lane_slots[] = {
    {Py_tp_doc, "One producer's ring of messages to one consumer."},
    {Py_tp_new, lane_new},
    {Py_tp_dealloc, lane_dealloc},
    {Py_tp_methods, lane_methods},
    {0, NULL},
};

static PyType_Spec lane_spec = {"interlock.shm._core.Lane", sizeof(Lane), 0, Py_TPFLAGS_DEFAULT, lane_slots};

/* ---- Deque ------------------------------------------------------------------------------------------------------ */

typedef struct {
    PyObject_HEAD
    il_lease lease;
    il_deque *deque;
    uint64_t capacity;
    uint64_t *hand;
} Deque;

static PyObject *deque_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"buffer", "offset", "capacity", "hand", NULL};
    PyObject *buffer;
    Py_ssize_t offset, capacity, hand;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "Onnn:Deque", names, &buffer, &offset, &capacity, &hand) ||
        power_of_two(capacity, 1) < 0)
        return NULL;
    if (capacity > PY_SSIZE_T_MAX / 16) {
        PyErr_SetString(PyExc_ValueError, "the capacity is beyond any region");
        return NULL;
    }
    Deque *self = (Deque *)allocated(type);
    if (self == NULL)
        return NULL;
    self->capacity = (uint64_t)capacity;
    if (il_lease_take(&self->lease, buffer) < 0 ||
        (self->deque = il_lease_at(&self->lease, offset, (Py_ssize_t)sizeof(il_deque) + 8 * capacity, IL_LINE)) ==
            NULL ||
        (self->hand = il_lease_at(&self->lease, hand, sizeof(uint64_t), sizeof(uint64_t))) == NULL) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void deque_dealloc(PyObject *self)
{
    il_lease_give_back(&((Deque *)self)->lease);
    il_free(self);
}

PyDoc_STRVAR(deque_push_doc, "push($self, id, /)\n--\n\nOwner: add an id; False when full.");
static PyObject *deque_push(PyObject *object, PyObject *item)
{
    Deque *self = (Deque *)object;
    uint64_t id = id_value(item);
    if (id_failed(id))
        return NULL;
    return PyBool_FromLong(il_deque_push(self->deque, self->capacity, id) == IL_DEQUE_DONE);
}

PyDoc_STRVAR(deque_pop_doc, "pop($self, /)\n--\n\nOwner: the newest id, or 0.");
static PyObject *deque_pop(PyObject *object, PyObject *Py_UNUSED(none))
{
    Deque *self = (Deque *)object;
    uint64_t id = 0;
    int answer = il_deque_pop(self->deque, self->capacity, self->hand, &id);
    return PyLong_FromUnsignedLongLong(answer == IL_DEQUE_DONE ? id : 0u);
}

PyDoc_STRVAR(deque_steal_doc, "steal($self, /)\n--\n\nAnybody: the oldest id, 0 when empty, -1 when another was quicker.");
static PyObject *deque_steal(PyObject *object, PyObject *Py_UNUSED(none))
{
    Deque *self = (Deque *)object;
    uint64_t id = 0;
    int answer = il_deque_steal(self->deque, self->capacity, self->hand, &id);
    return answer == IL_DEQUE_DONE ? PyLong_FromUnsignedLongLong(id) : PyLong_FromLong(answer);
}

PyDoc_STRVAR(deque_size_doc, "size($self, /)\n--\n\nHow many ids seem to be there.");
static PyObject *deque_size(PyObject *object, PyObject *Py_UNUSED(none))
{
    return PyLong_FromUnsignedLongLong(il_deque_size(((Deque *)object)->deque));
}

PyDoc_STRVAR(deque_reset_doc, "reset($self, /)\n--\n\nAfter the owner's death: sound again, if nothing is listed.");
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
    {Py_tp_doc, "Ids that one owner pushes and pops and anybody steals."},
    {Py_tp_new, deque_new},
    {Py_tp_dealloc, deque_dealloc},
    {Py_tp_methods, deque_methods},
    {0, NULL},
};

static PyType_Spec deque_spec = {"interlock.shm._core.Deque", sizeof(Deque), 0, Py_TPFLAGS_DEFAULT, deque_slots};

/* ---- Slab ------------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    il_lease lease;
    il_pool pool;
} Slab;

static int slab_bind(Slab *self, Py_ssize_t rings, Py_ssize_t seats, Py_ssize_t deques, Py_ssize_t cells)
{
    il_pool *pool = &self->pool;
    Py_ssize_t seat_bytes = (Py_ssize_t)(pool->seat_count * sizeof(il_seat));
    Py_ssize_t deque_bytes = (Py_ssize_t)(pool->seat_count * pool->priorities * pool->deque_bytes);
    Py_ssize_t cell_bytes = (Py_ssize_t)(il_pool_cell_count(pool) * pool->cell_bytes);
    if ((pool->rings = il_lease_at(&self->lease, rings, sizeof(uint64_t), sizeof(uint64_t))) == NULL ||
        (pool->seats = il_lease_at(&self->lease, seats, seat_bytes, IL_LINE)) == NULL ||
        (pool->deques = il_lease_at(&self->lease, deques, deque_bytes, IL_LINE)) == NULL ||
        (pool->cells = il_lease_at(&self->lease, cells, cell_bytes, IL_LINE)) == NULL)
        return -1;
    return 0;
}

static PyObject *slab_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"buffer", "rings", "seats", "deques", "cells", "seat_count", "priorities", "capacity",
                            "range", "payload_max", "result_max", "claims_max", "me", NULL};
    PyObject *buffer;
    Py_ssize_t rings, seats, deques, cells, seat_count, priorities, capacity, range, payload, result, claims, me;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "Onnnnnnnnnnnn:Slab", names, &buffer, &rings, &seats, &deques,
                                     &cells, &seat_count, &priorities, &capacity, &range, &payload, &result, &claims,
                                     &me) ||
        power_of_two(capacity, 8) < 0)
        return NULL;
    if (seat_count < 1 || seat_count > (Py_ssize_t)IL_SEATS_MAX || me < 0 || me >= seat_count || priorities < 1 ||
        priorities > (Py_ssize_t)IL_PRIORITIES_MAX || range < 1 || range > 1 << 20 || payload < 0 || result < 0 ||
        payload > 1 << 30 || result > 1 << 30 || payload % 64 || result % 64 || claims < 1 || claims > 255 ||
        capacity > 1 << 24) {
        PyErr_SetString(PyExc_ValueError, "these sizes are not of a pool");
        return NULL;
    }
    Slab *self = (Slab *)allocated(type);
    if (self == NULL)
        return NULL;
    self->pool.seat_count = (uint32_t)seat_count;
    self->pool.priorities = (uint32_t)priorities;
    self->pool.capacity = (uint64_t)capacity;
    self->pool.deque_bytes = sizeof(il_deque) + 8u * (uint64_t)capacity;
    self->pool.range = (uint64_t)range;
    self->pool.payload_max = (uint64_t)payload;
    self->pool.result_max = (uint64_t)result;
    self->pool.cell_bytes = sizeof(il_cell) + (uint64_t)payload + (uint64_t)result;
    self->pool.claims_max = (uint32_t)claims;
    self->pool.me = (uint32_t)me;
    if (il_lease_take(&self->lease, buffer) < 0 || slab_bind(self, rings, seats, deques, cells) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void slab_dealloc(PyObject *self)
{
    il_lease_give_back(&((Slab *)self)->lease);
    il_free(self);
}

PyDoc_STRVAR(slab_submit_doc, "submit($self, payload, priority, detached, /)\n--\n\n"
                              "Queue a task and give its id; 0 when there is no room, -1 when the payload is too large.");
static PyObject *slab_submit(PyObject *object, PyObject *const *args, Py_ssize_t given)
{
    il_pool *pool = &((Slab *)object)->pool;
    if (argument_count("submit", given, 3) < 0)
        return NULL;
    long priority = PyLong_AsLong(args[1]);
    int detached = PyObject_IsTrue(args[2]);
    if ((priority == -1 && PyErr_Occurred()) || detached < 0)
        return NULL;
    if (priority < 0 || priority >= (long)pool->priorities) {
        PyErr_SetString(PyExc_ValueError, "no such priority");
        return NULL;
    }
    Py_buffer view;
    if (PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    uint64_t id = 0;
    int too_large = (uint64_t)view.len > pool->payload_max, answer = IL_POOL_NONE;
    if (!too_large)
        answer = il_pool_submit(pool, view.buf, (uint64_t)view.len, (uint32_t)priority, detached, &id);
    PyBuffer_Release(&view);
    return too_large ? PyLong_FromLong(-1) : PyLong_FromUnsignedLongLong(answer == IL_POOL_OK ? id : 0u);
}

PyDoc_STRVAR(slab_take_doc, "take($self, /)\n--\n\n"
                            "Claim a task and give its id; 0 when nothing waits, -1 when others were quicker.");
static PyObject *slab_take(PyObject *object, PyObject *Py_UNUSED(none))
{
    uint64_t id = 0;
    int answer = il_pool_take(&((Slab *)object)->pool, &id);
    return answer == IL_POOL_OK ? PyLong_FromUnsignedLongLong(id) : PyLong_FromLong(answer);
}

PyDoc_STRVAR(slab_payload_doc, "payload($self, id, /)\n--\n\nThe payload of a task that the caller has claimed.");
static PyObject *slab_payload(PyObject *object, PyObject *item)
{
    il_pool *pool = &((Slab *)object)->pool;
    uint64_t id = id_value(item);
    if (id_failed(id))
        return NULL;
    il_cell *cell = il_pool_cell_of(pool, id);
    uint64_t n = cell == NULL ? 0u : il_cell_payload_bytes(cell);
    if (cell == NULL || n > pool->payload_max)
        Py_RETURN_NONE;
    return PyBytes_FromStringAndSize((const char *)cell->bytes, (Py_ssize_t)n);
}

PyDoc_STRVAR(slab_detached_doc, "detached($self, id, /)\n--\n\nWhether nobody awaits a task that the caller has claimed.");
static PyObject *slab_detached(PyObject *object, PyObject *item)
{
    uint64_t id = id_value(item);
    if (id_failed(id))
        return NULL;
    il_cell *cell = il_pool_cell_of(&((Slab *)object)->pool, id);
    return PyBool_FromLong(cell != NULL && il_cell_detached(cell));
}

PyDoc_STRVAR(slab_finish_doc, "finish($self, id, state, result, /)\n--\n\n"
                              "Write the result and end a task of mine; 1 done, 0 not mine, -1 the result is too large.");
static PyObject *slab_finish(PyObject *object, PyObject *const *args, Py_ssize_t given)
{
    il_pool *pool = &((Slab *)object)->pool;
    if (argument_count("finish", given, 3) < 0)
        return NULL;
    uint64_t id = id_value(args[0]);
    if (id_failed(id))
        return NULL;
    long state = PyLong_AsLong(args[1]);
    if (state == -1 && PyErr_Occurred())
        return NULL;
    if (state != IL_DONE && state != IL_FAILED) {
        PyErr_SetString(PyExc_ValueError, "a task ends done or failed");
        return NULL;
    }
    Py_buffer view;
    if (PyObject_GetBuffer(args[2], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    il_cell *cell = il_pool_cell_of(pool, id);
    int answer = IL_POOL_NONE;
    if ((uint64_t)view.len > pool->result_max) {
        answer = -1;
    } else if (cell != NULL) {
        uint64_t word = il_load(&cell->word);
        if (il_word_state(word) == IL_CLAIMED && il_word_seat(word) == pool->me &&
            il_word_generation(word) == il_id_generation(id)) {
            if (view.len)
                memcpy(cell->bytes + pool->payload_max, view.buf, (size_t)view.len);
            il_store_own(&cell->result_bytes, (uint64_t)view.len);
            answer = il_pool_finish(pool, id, (uint32_t)state);
        }
    }
    PyBuffer_Release(&view);
    return PyLong_FromLong(answer);
}

PyDoc_STRVAR(slab_ended_doc, "ended($self, /)\n--\n\nThe ended tasks of my range, as a list of (id, state, result).");
static PyObject *slab_ended(PyObject *object, PyObject *Py_UNUSED(none))
{
    il_pool *pool = &((Slab *)object)->pool;
    PyObject *found = PyList_New(0);
    uint64_t index = 0, id = 0;
    uint32_t state = 0;
    while (found != NULL && il_pool_ended(pool, &index, &id, &state) == IL_POOL_OK) {
        il_cell *cell = il_pool_cell_of(pool, id);
        uint64_t n = cell == NULL || state == IL_POISONED ? 0u : il_load_own(&cell->result_bytes);
        if (cell == NULL)
            continue;
        if (n > pool->result_max)
            n = 0u; /* no result is empty: the reader in Python calls it corrupt */
        PyObject *result = PyBytes_FromStringAndSize((const char *)cell->bytes + pool->payload_max, (Py_ssize_t)n);
        PyObject *row = result == NULL ? NULL : Py_BuildValue("(KIN)", (unsigned long long)id, state, result);
        if (row == NULL || PyList_Append(found, row) < 0)
            Py_CLEAR(found);
        Py_XDECREF(row);
    }
    return found;
}

PyDoc_STRVAR(slab_release_doc, "release($self, id, /)\n--\n\nThe result of an ended task has been read; its cell is free.");
static PyObject *slab_release(PyObject *object, PyObject *item)
{
    uint64_t id = id_value(item);
    if (id_failed(id))
        return NULL;
    return PyBool_FromLong(il_pool_release(&((Slab *)object)->pool, id) == IL_POOL_OK);
}

PyDoc_STRVAR(slab_state_doc, "state($self, id, /)\n--\n\n(state, seat, claims) of a task, or None when the id is stale.");
static PyObject *slab_state(PyObject *object, PyObject *item)
{
    uint64_t id = id_value(item);
    if (id_failed(id))
        return NULL;
    il_cell *cell = il_pool_cell_of(&((Slab *)object)->pool, id);
    uint64_t word = cell == NULL ? 0u : il_load(&cell->word);
    if (cell == NULL || il_word_generation(word) != il_id_generation(id))
        Py_RETURN_NONE;
    return Py_BuildValue("(III)", il_word_state(word), il_word_seat(word), il_word_claims(word));
}

PyDoc_STRVAR(slab_reap_doc, "reap($self, seat, /)\n--\n\n"
                            "List again what a dead seat left; the caller holds its lock byte. (complete, found, ended).");
static PyObject *slab_reap(PyObject *object, PyObject *seat)
{
    il_pool *pool = &((Slab *)object)->pool;
    unsigned long dead = PyLong_AsUnsignedLong(seat);
    if (dead == (unsigned long)-1 && PyErr_Occurred())
        return NULL;
    if (dead >= pool->seat_count) {
        PyErr_SetString(PyExc_ValueError, "no such seat");
        return NULL;
    }
    uint32_t found = 0, ended = 0;
    int answer = il_pool_reap(pool, (uint32_t)dead, &found, &ended);
    return Py_BuildValue("(NII)", PyBool_FromLong(answer == IL_POOL_OK), found, ended);
}

PyDoc_STRVAR(slab_waiting_doc, "waiting($self, /)\n--\n\nWhether any deque seems to hold a task.");
static PyObject *slab_waiting(PyObject *object, PyObject *Py_UNUSED(none))
{
    return PyBool_FromLong(il_pool_waiting(&((Slab *)object)->pool));
}

PyDoc_STRVAR(slab_ring_doc, "ring($self, /)\n--\n\nWake one sleeping worker; False when nobody sleeps.");
static PyObject *slab_ring(PyObject *object, PyObject *Py_UNUSED(none))
{
    return PyBool_FromLong(il_pool_ring(&((Slab *)object)->pool));
}

static PyMethodDef slab_methods[] = {
    {"submit", (PyCFunction)(void (*)(void))slab_submit, METH_FASTCALL, slab_submit_doc},
    {"take", slab_take, METH_NOARGS, slab_take_doc},
    {"payload", slab_payload, METH_O, slab_payload_doc},
    {"detached", slab_detached, METH_O, slab_detached_doc},
    {"finish", (PyCFunction)(void (*)(void))slab_finish, METH_FASTCALL, slab_finish_doc},
    {"ended", slab_ended, METH_NOARGS, slab_ended_doc},
    {"release", slab_release, METH_O, slab_release_doc},
    {"state", slab_state, METH_O, slab_state_doc},
    {"reap", slab_reap, METH_O, slab_reap_doc},
    {"waiting", slab_waiting, METH_NOARGS, slab_waiting_doc},
    {"ring", slab_ring, METH_NOARGS, slab_ring_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slab_slots[] = {
    {Py_tp_doc, "Tasks in cells, listed on the deques of seats."},
    {Py_tp_new, slab_new},
    {Py_tp_dealloc, slab_dealloc},
    {Py_tp_methods, slab_methods},
    {0, NULL},
};

static PyType_Spec slab_spec = {"interlock.shm._core.Slab", sizeof(Slab), 0, Py_TPFLAGS_DEFAULT, slab_slots};

/* ---- The module's part -------------------------------------------------------------------------------------------- */

int il_queues_add(PyObject *module)
{
    PyType_Spec *specs[] = {&lane_spec, &deque_spec, &slab_spec};
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
