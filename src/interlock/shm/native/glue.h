/* What the C files of the extension module share: Python.h in the limited API, and memory lent by a buffer.
 *
 * Rule 1: the limited API of 3.11 where it exists; free-threaded builds have none before 3.15, and use the full one.
 * Rule 2: an object that points into a region holds its buffer for as long as it lives: no use after unmapping.
 */
#ifndef INTERLOCK_GLUE_H
#define INTERLOCK_GLUE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "core.h"

/* A region's mapping, lent by its buffer. */
typedef struct {
    Py_buffer view;
    int held;
} il_lease;

/* Borrows a writable buffer, or sets an exception and gives -1. */
static inline int il_lease_take(il_lease *lease, PyObject *source)
{
    if (PyObject_GetBuffer(source, &lease->view, PyBUF_WRITABLE) < 0)
        return -1;
    lease->held = 1;
    if ((uintptr_t)lease->view.buf % IL_LINE != 0) {
        PyErr_SetString(PyExc_ValueError, "a region starts on a cache line");
        PyBuffer_Release(&lease->view);
        lease->held = 0;
        return -1;
    }
    return 0;
}

static inline void il_lease_give_back(il_lease *lease)
{
    if (lease->held)
        PyBuffer_Release(&lease->view);
    lease->held = 0;
}

/* The address of `size` bytes at `offset`, aligned to `align`; or NULL and a ValueError. */
static inline void *il_lease_at(il_lease *lease, Py_ssize_t offset, Py_ssize_t size, Py_ssize_t align)
{
    if (!lease->held || offset < 0 || size < 0 || offset % align != 0 || size > lease->view.len ||
        offset > lease->view.len - size) {
        PyErr_Format(PyExc_ValueError, "%zd bytes at %zd are not in the region, or not aligned", size, offset);
        return NULL;
    }
    return (char *)lease->view.buf + offset;
}

/* A further reference to an object. */
static inline void *il_share(void *object)
{
    Py_INCREF((PyObject *)object);
    return object;
}

static inline void il_drop(void *object) { Py_XDECREF((PyObject *)object); }

/* The type of heap objects goes with them. */
static inline void il_free(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    il_drop(type);
}

/* Adds the types of _queues.c to the module; 0, or -1 with an exception. */
int il_queues_add(PyObject *module);

#endif
