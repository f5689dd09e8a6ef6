// Python values into typed columns, one value at a time.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "array_out.hpp"
#include "column.hpp"

namespace penstock {

class Builder {
   public:
    explicit Builder(const Type& type) : type_(type) {}
    virtual ~Builder() = default;

    // False where the value does not belong in the column, with or without a Python exception that says why.
    bool append(PyObject* value) {
        if (value == Py_None) {
            if (!type_.nullable) return false;
            append_null();
        } else if (!append_value(value)) {
            return false;
        }
        length_++;
        return true;
    }

    const Type& type() const { return type_; }
    int64_t length() const { return length_; }
    virtual void truncate(int64_t length) = 0;  // forget what came after
    virtual ArrayOut done() = 0;
    virtual PyObject* list() { return nullptr; }  // values kept as Python objects, for pyarrow to convert

   protected:
    virtual void append_null() = 0;
    virtual bool append_value(PyObject* value) = 0;

    const Type& type_;
    int64_t length_ = 0;
};

// `check` is None where the type is built here; else a callable that raises where pyarrow could not take a value.
std::unique_ptr<Builder> make_builder(const Type& type, nanobind::handle check);

// Whether a type is built here.
bool builds(const Type& type);

}  // namespace penstock
