// Python values into typed columns, one value at a time.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <vector>

#include "kernels/columns/array_out.hpp"
#include "kernels/columns/column.hpp"

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

    // A null inside a value that is null itself, whether or not the column may have nulls.
    void skip() {
        append_null();
        length_++;
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

// One byte for each value until the end, when it is packed.
class WithValidity : public Builder {
   public:
    using Builder::Builder;

   protected:
    void mark(bool valid) {
        valid_.resize(static_cast<size_t>(length_) + 1);
        valid_[static_cast<size_t>(length_)] = valid;
    }

    Buffer validity(ArrayOut& out) {
        out.length = length_;
        return pack_validity(valid_.data(), length_, out.null_count);
    }

    std::vector<uint8_t> valid_;
};

// `help` is a callable or None. For a type that is not built here it raises where pyarrow could not take a value. For a
// nested type that is built here, it gives the value in its plainest form, or raises.
std::unique_ptr<Builder> make_builder(const Type& type, nanobind::handle help);

// Whether a type is built here.
bool builds(const Type& type);

// For types that are built here, without help.
std::unique_ptr<Builder> make_native_builder(const Type& type);
std::unique_ptr<Builder> make_nested_builder(const Type& type);

// A nested builder that asks for help with values of an unusual form.
std::unique_ptr<Builder> make_forgiving_builder(const Type& type, nanobind::handle help);

// Microseconds since 1970 of a datetime; false where it is none, with or without a Python exception.
bool timestamp_us(PyObject* value, int64_t& out);

}  // namespace penstock
