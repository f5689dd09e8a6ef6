#include "kernels/keyed/key_state.hpp"

#include <datetime.h>

namespace nb = nanobind;

namespace penstock {

namespace {

constexpr Py_ssize_t ENDS_CHECKED = 8;  // values at each end of a container
constexpr int VALUES_CHECKED_MAX = 256; // in one put, nested ones included
constexpr int DEPTH_MAX = 50;           // as keyed_state.py says

PyTypeObject* state_type = nullptr;
PyObject* decimal_type = nullptr;
PyObject* refused_name = nullptr;

// Subclasses do not fit: what is saved has lost its class, and would come back as something else.
bool is_leaf(PyObject* value) {
    if (value == Py_None || PyUnicode_CheckExact(value) || PyLong_CheckExact(value) || PyFloat_CheckExact(value)) return true;
    if (PyBool_Check(value) || PyBytes_CheckExact(value) || PyDelta_CheckExact(value)) return true;
    if (PyDateTime_CheckExact(value)) {
        PyObject* zone = PyDateTime_DATE_GET_TZINFO(value);
        return zone == Py_None || Py_IS_TYPE(zone, Py_TYPE(PyDateTime_TimeZone_UTC));
    }
    return PyDate_CheckExact(value) || Py_IS_TYPE(value, reinterpret_cast<PyTypeObject*>(decimal_type));
}

// The quick check. False where a value cannot be saved or may not be: the slow check in Python then decides and says
// why.
class Look {
   public:
    bool fits(PyObject* value, int depth = 0) {
        if (depth > DEPTH_MAX) return false;
        if (++seen_ > VALUES_CHECKED_MAX || is_leaf(value)) return true;
        if (PyList_CheckExact(value)) return ends_fit(value, PyList_GET_SIZE(value), PyList_GetItem, depth);
        if (PyTuple_CheckExact(value)) return ends_fit(value, PyTuple_GET_SIZE(value), PyTuple_GetItem, depth);
        return PyDict_CheckExact(value) && dict_fits(value, depth);
    }

   private:
    template <class Get>
    bool ends_fit(PyObject* value, Py_ssize_t size, Get get, int depth) {
        const Py_ssize_t last = size - ENDS_CHECKED;
        for (Py_ssize_t i = 0; i < size; i++) {
            if (i == ENDS_CHECKED && i < last) i = last;
            if (!fits(get(value, i), depth + 1)) return false;
        }
        return true;
    }

    bool pair_fits(PyObject* name, PyObject* value, int depth) { return fits(name, depth + 1) && fits(value, depth + 1); }

    bool dict_fits(PyObject* value, int depth) {
        PyObject *name = nullptr, *item = nullptr;
        Py_ssize_t at = 0;
        for (Py_ssize_t i = 0; i < 2 * ENDS_CHECKED && PyDict_Next(value, &at, &name, &item); i++)
            if (!pair_fits(name, item, depth)) return false;
        return PyDict_GET_SIZE(value) <= 2 * ENDS_CHECKED || newest_fit(value, depth);
    }

    bool newest_fit(PyObject* value, int depth) {
        nb::object backwards = nb::steal(PyObject_CallMethod(value, "__reversed__", nullptr));
        for (Py_ssize_t i = 0; backwards.is_valid() && i < ENDS_CHECKED; i++) {
            nb::object name = nb::steal(PyIter_Next(backwards.ptr()));
            PyObject* item = name.is_valid() ? PyDict_GetItemWithError(value, name.ptr()) : nullptr;
            if (item == nullptr) break;
            if (!pair_fits(name.ptr(), item, depth)) return false;
        }
        const bool failed = PyErr_Occurred() != nullptr;
        PyErr_Clear();
        return !failed;
    }

    int seen_ = 0;
};

int assign(PyObject* self, PyObject* name, PyObject* value) {
    if (value == nullptr) return PyDict_DelItem(self, name);
    if (!PyUnicode_CheckExact(name) || !(PyLong_CheckExact(value) || Look().fits(value))) {
        PyObject* answer = PyObject_CallMethodObjArgs(self, refused_name, name, value, nullptr);
        if (answer == nullptr) return -1;
        Py_DECREF(answer);
    }
    return PyDict_SetItem(self, name, value);
}

void dealloc(PyObject* self) {
    PyTypeObject* type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    KeyStateObject* state = as_key_state(self);
    delete state->timers;
    state->timers = nullptr;
    Py_CLEAR(state->key);
    Py_CLEAR(state->hashed);
    PyDict_Type.tp_dealloc(self);
    Py_DECREF(type);  // instances of heap types hold their type
}

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("What is known about one key: a dict with text names that refuses what cannot be saved.")},
    {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
    {Py_mp_ass_subscript, reinterpret_cast<void*>(assign)},
    {0, nullptr},
};

PyType_Spec specification = {"penstock._core.StateDict", sizeof(KeyStateObject), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};

}  // namespace

bool is_key_state(PyObject* object) { return PyObject_TypeCheck(object, state_type); }

bool init_key_state_type(nb::module_& module) {
    PyDateTime_IMPORT;
    nb::object bases = nb::steal(PyTuple_Pack(1, &PyDict_Type));
    if (PyDateTimeAPI == nullptr || !bases.is_valid()) return false;
    decimal_type = nb::object(nb::module_::import_("decimal").attr("Decimal")).release().ptr();
    refused_name = PyUnicode_InternFromString("_refused");
    state_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpecWithBases(&specification, bases.ptr()));
    return refused_name != nullptr && state_type != nullptr &&
           PyModule_AddObjectRef(module.ptr(), "StateDict", reinterpret_cast<PyObject*>(state_type)) == 0;
}

}  // namespace penstock
