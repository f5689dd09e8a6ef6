// Capsules and addresses. pyarrow moves an array out of the struct it is given and clears `release`. A struct that
// still has a `release` when an error passes through is released here.
#include "kernels/columns/exchange.hpp"

#include <stdexcept>

namespace nb = nanobind;

namespace penstock {

namespace {

struct Released {
    ArrowArray array{};
    ~Released() {
        if (array.release != nullptr) array.release(&array);
    }
};

nb::object address_of(ArrowArray& array) { return nb::steal(PyLong_FromVoidPtr(&array)); }

// Looked up once and kept for good: an import and an attribute for every batch would cost as much as the transfer.
PyObject* import_function() {
    static PyObject* const function =
        nb::object(nb::module_::import_("pyarrow").attr("RecordBatch").attr("_import_from_c")).release().ptr();
    return function;
}

PyObject* export_name() {
    static PyObject* const name = PyUnicode_InternFromString("_export_to_c");
    return name;
}

}  // namespace

std::unique_ptr<Layout> make_layout(nb::handle capsule) {
    auto* schema = static_cast<ArrowSchema*>(PyCapsule_GetPointer(capsule.ptr(), "arrow_schema"));
    if (schema == nullptr) throw nb::python_error();
    return std::make_unique<Layout>(Layout{parse_type(*schema)});
}

void export_from(nb::handle batch, ArrowArray* out) {
    const nb::object done = nb::steal(PyObject_CallMethodOneArg(batch.ptr(), export_name(), address_of(*out).ptr()));
    if (!done.is_valid()) throw nb::python_error();
}

nb::object import_into(ArrowArray* array, nb::handle schema) {
    const nb::object address = address_of(*array);
    PyObject* arguments[] = {address.ptr(), schema.ptr()};
    nb::object batch = nb::steal(PyObject_Vectorcall(import_function(), arguments, 2, nullptr));
    if (batch.is_valid()) return batch;
    if (array->release != nullptr) array->release(array);
    throw nb::python_error();
}

std::shared_ptr<const Batch> import_batch(const Layout& layout, nb::handle batch) {
    Released taken;
    const nb::object done = nb::steal(PyObject_CallMethodOneArg(batch.ptr(), export_name(), address_of(taken.array).ptr()));
    if (!done.is_valid()) throw nb::python_error();
    if (taken.array.n_children != static_cast<int64_t>(layout.root.children.size()))
        throw std::invalid_argument("the batch does not have the columns of its schema");
    return std::make_shared<const Batch>(layout.root, std::move(taken.array));
}

nb::object to_pyarrow(int64_t rows, std::vector<ArrayOut>&& columns, nb::handle schema) {
    Released given;
    export_batch(rows, std::move(columns), &given.array);
    const nb::object address = address_of(given.array);
    PyObject* arguments[] = {address.ptr(), schema.ptr()};
    nb::object batch = nb::steal(PyObject_Vectorcall(import_function(), arguments, 2, nullptr));
    if (!batch.is_valid()) throw nb::python_error();
    return batch;
}

}  // namespace penstock
