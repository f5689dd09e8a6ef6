// Row: one row of a batch as a Python object that reads values when they are asked for.
//
// A row points into its batch and keeps it alive; a value becomes a Python object when it is asked for. A row made in
// Python (`Row(a=1)`) holds its values instead. Row is a plain CPython type with a free list: one is made for every row
// of every batch, and a class of the binding library costs several times as much.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <utility>
#include <vector>

#include "kernels/columns/column.hpp"
#include "kernels/columns/exchange.hpp"

namespace penstock {

// The names of structs' fields as Python strings, made once for a batch.
class FieldNames {
   public:
    PyObject* of(const Type& type);  // a borrowed tuple, or nullptr with an exception set

   private:
    std::vector<std::pair<const Type*, nanobind::object>> known_;
};

// Shared by the rows of one batch. A plain counter of references will do: rows come and go under the interpreter lock.
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
    std::vector<bool> reads_;  // by column: whether values are read here, and not by pyarrow
    FieldNames field_names_;
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
// Moves the row to another index; where the user has kept the row, makes a new one.
void move_row(nanobind::object& row, RowSource* source, int64_t index);
PyObject* row_names(PyObject* row);                                // borrowed
PyObject* row_value(PyObject* row, Py_ssize_t column);             // new reference
Py_ssize_t position_of(PyObject* names, PyObject* name);           // -1 where it is not there
bool init_row_type(nanobind::module_& module);

}  // namespace penstock
