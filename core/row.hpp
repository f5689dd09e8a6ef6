// Row: one row of a batch as a Python object that reads values when they are asked for.
//
// A row points into its batch and keeps it alive; columns that nobody asks for are never boxed. A row made in Python
// (`Row(a=1)`) holds its values instead. It is a plain CPython type with a free list, for it is made once per row of
// every batch and a class of the binding library costs several times as much.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <vector>

#include "column.hpp"
#include "exchange.hpp"

namespace penstock {

// What the rows of one batch share. Counted by hand: rows come and go under the interpreter lock.
class RowSource {
   public:
    RowSource(nanobind::object layout, nanobind::object batch, nanobind::object names);

    // A new reference to one value, or nullptr with an exception set.
    PyObject* value(Py_ssize_t column, int64_t row);

    std::shared_ptr<const Batch> batch;
    PyObject* names() const { return names_.ptr(); }  // a tuple of interned strings
    void hold() { holders_++; }
    void drop() {
        if (--holders_ == 0) delete this;
    }

   private:
    PyObject* slow_value(Py_ssize_t column, int64_t row);

    nanobind::object layout_;
    nanobind::object pyarrow_batch_;
    nanobind::object names_;
    std::vector<nanobind::object> slow_columns_;  // pyarrow arrays, fetched when first needed
    int64_t holders_ = 1;
};

struct RowObject {
    PyObject_HEAD
    RowSource* source;  // nullptr where the row holds its values
    int64_t index;
    PyObject* names;    // tuple
    PyObject* values;   // tuple, or nullptr
};

bool is_row(PyObject* object);
PyObject* make_row(RowSource* source, int64_t index);              // new reference
// Makes the row that `row` holds stand for another index where nobody else has kept it, or a new one.
void move_row(nanobind::object& row, RowSource* source, int64_t index);
PyObject* row_names(PyObject* row);                                // borrowed
PyObject* row_value(PyObject* row, Py_ssize_t column);             // new reference
Py_ssize_t position_of(PyObject* names, PyObject* name);           // -1 where it is not there
bool init_row_type(nanobind::module_& module);

}  // namespace penstock
