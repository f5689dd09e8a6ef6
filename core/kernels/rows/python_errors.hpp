// Python's pending exception as an object.
#pragma once

#include <nanobind/nanobind.h>

namespace penstock {

// The pending exception with its traceback; none is pending afterwards.
inline nanobind::object take_exception() {
#if PY_VERSION_HEX >= 0x030C0000
    return nanobind::steal(PyErr_GetRaisedException());
#else
    PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback != nullptr) PyException_SetTraceback(value, traceback);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    return nanobind::steal(value);
#endif
}

}  // namespace penstock
