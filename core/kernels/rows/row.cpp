#include "kernels/rows/row.hpp"

namespace nb = nanobind;

namespace penstock {

namespace {

constexpr int FREE_ROWS_MAX = 64;

PyTypeObject* row_type = nullptr;
RowObject* free_rows[FREE_ROWS_MAX];
int free_count = 0;

RowObject* as_row(PyObject* object) { return reinterpret_cast<RowObject*>(object); }

RowObject* allocate() {
    if (free_count > 0) {
        RowObject* row = free_rows[--free_count];
        PyObject_Init(reinterpret_cast<PyObject*>(row), row_type);
        return row;
    }
    return PyObject_New(RowObject, row_type);
}

void dealloc(PyObject* self) {
    RowObject* row = as_row(self);
    Py_XDECREF(row->names);
    Py_XDECREF(row->values);
    if (row->source != nullptr) row->source->drop();
    if (free_count < FREE_ROWS_MAX) {
        free_rows[free_count++] = row;
    } else {
        PyObject_Free(self);
    }
    Py_DECREF(row_type);  // instances of heap types hold their type
}

PyObject* new_row(PyTypeObject*, PyObject* args, PyObject* kwargs) {
    if (PyTuple_GET_SIZE(args) != 0) {
        PyErr_SetString(PyExc_TypeError, "Row takes its values by name, as in Row(word='a', count=1)");
        return nullptr;
    }
    const Py_ssize_t size = kwargs == nullptr ? 0 : PyDict_GET_SIZE(kwargs);
    PyObject* names = PyTuple_New(size);
    PyObject* values = PyTuple_New(size);
    RowObject* row = names != nullptr && values != nullptr ? allocate() : nullptr;
    if (row == nullptr) {
        Py_XDECREF(names);
        Py_XDECREF(values);
        return nullptr;
    }
    PyObject *name = nullptr, *value = nullptr;
    Py_ssize_t at = 0;
    for (Py_ssize_t i = 0; size > 0 && PyDict_Next(kwargs, &at, &name, &value); i++) {
        PyTuple_SET_ITEM(names, i, Py_NewRef(name));
        PyTuple_SET_ITEM(values, i, Py_NewRef(value));
    }
    row->source = nullptr;
    row->index = 0;
    row->names = names;
    row->values = values;
    return reinterpret_cast<PyObject*>(row);
}

Py_ssize_t size_of(PyObject* self) { return PyTuple_GET_SIZE(as_row(self)->names); }

PyObject* value_tuple(PyObject* self) {
    RowObject* row = as_row(self);
    if (row->values != nullptr) return Py_NewRef(row->values);
    const Py_ssize_t size = size_of(self);
    PyObject* values = PyTuple_New(size);
    for (Py_ssize_t i = 0; values != nullptr && i < size; i++) {
        PyObject* value = row_value(self, i);
        if (value == nullptr) {
            Py_DECREF(values);
            return nullptr;
        }
        PyTuple_SET_ITEM(values, i, value);
    }
    return values;
}

PyObject* joined_names(PyObject* self) {
    PyObject* comma = PyUnicode_FromString(", ");
    PyObject* joined = comma == nullptr ? nullptr : PyUnicode_Join(comma, as_row(self)->names);
    Py_XDECREF(comma);
    return joined;
}

void no_such_column(PyObject* self, PyObject* name, PyObject* error) {
    PyObject* names = joined_names(self);
    if (names != nullptr) PyErr_Format(error, "row has no column %R; its columns are %U", name, names);
    Py_XDECREF(names);
}

bool is_dunder(PyObject* name) {
    return PyUnicode_GET_LENGTH(name) > 4 && PyUnicode_READ_CHAR(name, 0) == '_' && PyUnicode_READ_CHAR(name, 1) == '_';
}

PyObject* getattro(PyObject* self, PyObject* name) {
    const Py_ssize_t column = position_of(as_row(self)->names, name);
    if (column >= 0 && !is_dunder(name)) return row_value(self, column);
    PyObject* found = PyObject_GenericGetAttr(self, name);
    if (found == nullptr && !is_dunder(name) && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        no_such_column(self, name, PyExc_AttributeError);
    }
    return found;
}

int setattro(PyObject*, PyObject* name, PyObject*) {
    PyErr_Format(PyExc_AttributeError, "rows are immutable; return a new one instead of setting %R", name);
    return -1;
}

PyObject* by_position(PyObject* self, PyObject* key) {
    Py_ssize_t at = PyNumber_AsSsize_t(key, PyExc_IndexError);
    if (at == -1 && PyErr_Occurred()) return nullptr;
    const Py_ssize_t size = size_of(self);
    if (at < 0) at += size;
    if (at >= 0 && at < size) return row_value(self, at);
    PyObject* names = joined_names(self);
    if (names != nullptr) PyErr_Format(PyExc_IndexError, "row has no column %R; its %zd columns are %U", key, size, names);
    Py_XDECREF(names);
    return nullptr;
}

PyObject* subscript(PyObject* self, PyObject* key) {
    if (PyUnicode_Check(key)) {
        const Py_ssize_t column = position_of(as_row(self)->names, key);
        if (column >= 0) return row_value(self, column);
        no_such_column(self, key, PyExc_KeyError);
        return nullptr;
    }
    if (PyIndex_Check(key)) return by_position(self, key);
    PyObject* values = value_tuple(self);
    PyObject* found = values == nullptr ? nullptr : PyObject_GetItem(values, key);
    Py_XDECREF(values);
    return found;
}

int contains(PyObject* self, PyObject* name) { return PyUnicode_Check(name) && position_of(as_row(self)->names, name) >= 0; }

PyObject* iterate(PyObject* self) {
    PyObject* values = value_tuple(self);
    PyObject* iterator = values == nullptr ? nullptr : PyObject_GetIter(values);
    Py_XDECREF(values);
    return iterator;
}

PyObject* compare(PyObject* self, PyObject* other, int op) {
    if ((op != Py_EQ && op != Py_NE) || !(is_row(other) || PyTuple_Check(other))) Py_RETURN_NOTIMPLEMENTED;
    if (is_row(other)) {
        const int same = PyObject_RichCompareBool(as_row(self)->names, as_row(other)->names, Py_EQ);
        if (same <= 0) return same < 0 ? nullptr : PyBool_FromLong(op == Py_NE);
    }
    PyObject* mine = value_tuple(self);
    PyObject* theirs = mine == nullptr ? nullptr : is_row(other) ? value_tuple(other) : Py_NewRef(other);
    PyObject* answer = theirs == nullptr ? nullptr : PyObject_RichCompare(mine, theirs, op);
    Py_XDECREF(mine);
    Py_XDECREF(theirs);
    return answer;
}

Py_hash_t hash(PyObject* self) {
    PyObject* values = value_tuple(self);
    const Py_hash_t found = values == nullptr ? -1 : PyObject_Hash(values);
    Py_XDECREF(values);
    return found;
}

PyObject* as_dict(PyObject* self, PyObject*) {
    PyObject* found = PyDict_New();
    for (Py_ssize_t i = 0; found != nullptr && i < size_of(self); i++) {
        PyObject* value = row_value(self, i);
        const int failed = value == nullptr ? -1 : PyDict_SetItem(found, PyTuple_GET_ITEM(as_row(self)->names, i), value);
        Py_XDECREF(value);
        if (failed != 0) Py_CLEAR(found);
    }
    return found;
}

PyObject* keys(PyObject* self, PyObject*) { return Py_NewRef(as_row(self)->names); }

PyObject* repr(PyObject* self) {
    PyObject* parts = PyList_New(0);
    for (Py_ssize_t i = 0; parts != nullptr && i < size_of(self); i++) {
        PyObject* name = PyTuple_GET_ITEM(as_row(self)->names, i);
        PyObject* value = row_value(self, i);
        if (value == nullptr && !PyErr_ExceptionMatches(PyExc_Exception)) Py_CLEAR(parts);
        if (value == nullptr && parts != nullptr) PyErr_Clear();  // errors show the row, so it must have a text
        if (parts == nullptr) break;
        PyObject* part = value == nullptr ? PyUnicode_FromFormat("%U=<unreadable>", name)
                                          : PyUnicode_FromFormat("%U=%R", name, value);
        const int failed = part == nullptr ? -1 : PyList_Append(parts, part);
        Py_XDECREF(value);
        Py_XDECREF(part);
        if (failed != 0) Py_CLEAR(parts);
    }
    PyObject* comma = parts == nullptr ? nullptr : PyUnicode_FromString(", ");
    PyObject* joined = comma == nullptr ? nullptr : PyUnicode_Join(comma, parts);
    PyObject* text = joined == nullptr ? nullptr : PyUnicode_FromFormat("Row(%U)", joined);
    Py_XDECREF(parts);
    Py_XDECREF(comma);
    Py_XDECREF(joined);
    return text;
}

// Pickles and copies as a row that holds its values.
PyObject* reduce(PyObject* self, PyObject*) {
    PyObject* values = as_dict(self, nullptr);
    PyObject* rebuild = values == nullptr ? nullptr : PyObject_GetAttrString(reinterpret_cast<PyObject*>(row_type), "_from");
    PyObject* answer = rebuild == nullptr ? nullptr : Py_BuildValue("(O(O))", rebuild, values);
    Py_XDECREF(values);
    Py_XDECREF(rebuild);
    return answer;
}

// The same row holding its own values, so that it can be kept longer than its batch.
PyObject* apart(PyObject* self, PyObject*) {
    if (as_row(self)->values != nullptr) return Py_NewRef(self);
    PyObject* values = value_tuple(self);
    RowObject* row = values == nullptr ? nullptr : allocate();
    if (row == nullptr) {
        Py_XDECREF(values);
        return nullptr;
    }
    row->source = nullptr;
    row->index = 0;
    row->names = Py_NewRef(as_row(self)->names);
    row->values = values;
    return reinterpret_cast<PyObject*>(row);
}

PyObject* from_dict(PyObject*, PyObject* values) {
    PyObject* none = PyDict_Check(values) ? PyTuple_New(0) : nullptr;
    if (none == nullptr) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "a row is made from a dict");
        return nullptr;
    }
    PyObject* row = new_row(row_type, none, values);
    Py_DECREF(none);
    return row;
}

PyMethodDef methods[] = {
    {"asDict", as_dict, METH_NOARGS, "Values by column."},
    {"keys", keys, METH_NOARGS, "The names of the columns."},
    {"_apart", apart, METH_NOARGS, nullptr},
    {"__reduce__", reduce, METH_NOARGS, nullptr},
    {"_from", from_dict, METH_O | METH_STATIC, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

template <class Function>
void* slot(Function function) {
    return reinterpret_cast<void*>(function);
}

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("One row, like PySpark's: row['a'], row.a, row[0]; immutable. A column comes before a "
                                  "method of the same name; row['keys'] always is the column.")},
    {Py_tp_new, slot(new_row)},
    {Py_tp_dealloc, slot(dealloc)},
    {Py_tp_getattro, slot(getattro)},
    {Py_tp_setattro, slot(setattro)},
    {Py_tp_iter, slot(iterate)},
    {Py_tp_richcompare, slot(compare)},
    {Py_tp_hash, slot(hash)},
    {Py_tp_repr, slot(repr)},
    {Py_tp_methods, methods},
    {Py_mp_subscript, slot(subscript)},
    {Py_mp_length, slot(size_of)},
    {Py_sq_length, slot(size_of)},
    {Py_sq_contains, slot(contains)},
    {0, nullptr},
};

PyType_Spec specification = {"penstock._core.Row", sizeof(RowObject), 0, Py_TPFLAGS_DEFAULT, slots};

}  // namespace

bool is_row(PyObject* object) { return Py_TYPE(object) == row_type; }

PyObject* make_row(RowSource* source, int64_t index) {
    RowObject* row = allocate();
    if (row == nullptr) return nullptr;
    source->hold();
    row->source = source;
    row->index = index;
    row->names = Py_NewRef(source->names());
    row->values = nullptr;
    return reinterpret_cast<PyObject*>(row);
}

void move_row(nb::object& row, RowSource* source, int64_t index) {
    if (row.is_valid() && Py_REFCNT(row.ptr()) == 1) {
        as_row(row.ptr())->index = index;
        return;
    }
    row = nb::steal(make_row(source, index));
    if (!row.is_valid()) throw nb::python_error();
}

PyObject* row_names(PyObject* row) { return as_row(row)->names; }

PyObject* row_value(PyObject* self, Py_ssize_t column) {
    RowObject* row = as_row(self);
    if (row->values != nullptr) return Py_NewRef(PyTuple_GET_ITEM(row->values, column));
    return row->source->value(column, row->index);
}

// Names in source code and names of columns are interned, so the first loop nearly always finds them.
Py_ssize_t position_of(PyObject* names, PyObject* name) {
    const Py_ssize_t size = PyTuple_GET_SIZE(names);
    for (Py_ssize_t i = 0; i < size; i++)
        if (PyTuple_GET_ITEM(names, i) == name) return i;
    for (Py_ssize_t i = 0; i < size; i++)
        if (PyUnicode_Compare(PyTuple_GET_ITEM(names, i), name) == 0) return i;
    return -1;
}

bool init_row_type(nb::module_& module) {
    row_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&specification));
    return row_type != nullptr && PyModule_AddObjectRef(module.ptr(), "Row", reinterpret_cast<PyObject*>(row_type)) == 0;
}

}  // namespace penstock
