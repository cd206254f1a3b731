/* Shared by the C files of the extension module: Python.h with the limited API, and the mapped memory of a region.
 *
 * Rule 1: the limited API of 3.11 is used where it exists; free-threaded builds before 3.15 use the full API.
 * Rule 2: an object that points into a region holds the buffer while it exists, so the memory stays mapped.
 */
#ifndef INTERLOCK_EXTENSION_H
#define INTERLOCK_EXTENSION_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "core.h"

/* The mapping of a region, acquired through the buffer protocol. */
typedef struct {
    Py_buffer view;
    int acquired;
} il_buffer;

/* Acquires a writable buffer. Returns 0, or -1 with an exception. */
static inline int il_buffer_acquire(il_buffer *memory, PyObject *source)
{
    if (PyObject_GetBuffer(source, &memory->view, PyBUF_WRITABLE) < 0)
        return -1;
    memory->acquired = 1;
    if ((uintptr_t)memory->view.buf % IL_LINE != 0) {
        PyErr_SetString(PyExc_ValueError, "a region must start on a cache line");
        PyBuffer_Release(&memory->view);
        memory->acquired = 0;
        return -1;
    }
    return 0;
}

static inline void il_buffer_release(il_buffer *memory)
{
    if (memory->acquired)
        PyBuffer_Release(&memory->view);
    memory->acquired = 0;
}

/* The address of `size` bytes at `offset`, aligned to `align`; or NULL with a ValueError. */
static inline void *il_buffer_at(il_buffer *memory, Py_ssize_t offset, Py_ssize_t size, Py_ssize_t align)
{
    if (!memory->acquired || offset < 0 || size < 0 || offset % align != 0 || size > memory->view.len ||
        offset > memory->view.len - size) {
        PyErr_Format(PyExc_ValueError, "%zd bytes at %zd are outside the region, or not aligned", size, offset);
        return NULL;
    }
    return (char *)memory->view.buf + offset;
}

/* Returns the object with a new reference. */
static inline void *il_new_reference(void *object)
{
    Py_INCREF((PyObject *)object);
    return object;
}

static inline void il_drop_reference(void *object) { Py_XDECREF((PyObject *)object); }

/* Frees an object of a heap type, and its reference to the type. */
static inline void il_free_object(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    il_drop_reference(type);
}

/* Adds the types of _queues.c to the module. Returns 0, or -1 with an exception. */
int il_add_queue_types(PyObject *module);

#endif
