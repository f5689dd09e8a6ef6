// Capsules and addresses. pyarrow moves an array out of the struct it is given and clears `release`; whatever still has
// one when an error passes through is released here.
#include "exchange.hpp"

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

nb::object address_of(ArrowArray& array) { return nb::int_(reinterpret_cast<uintptr_t>(&array)); }

}  // namespace

std::unique_ptr<Layout> make_layout(nb::handle capsule) {
    auto* schema = static_cast<ArrowSchema*>(PyCapsule_GetPointer(capsule.ptr(), "arrow_schema"));
    if (schema == nullptr) throw nb::python_error();
    return std::make_unique<Layout>(Layout{parse_type(*schema)});
}

std::shared_ptr<const Batch> import_batch(const Layout& layout, nb::handle batch) {
    Released taken;
    batch.attr("_export_to_c")(address_of(taken.array));
    if (taken.array.n_children != static_cast<int64_t>(layout.root.children.size()))
        throw std::invalid_argument("the batch does not have the columns of its schema");
    auto imported = std::make_shared<const Batch>(layout.root, std::move(taken.array));
    return imported;
}

nb::object to_pyarrow(int64_t rows, std::vector<ArrayOut>&& columns, nb::handle schema) {
    Released given;
    export_batch(rows, std::move(columns), &given.array);
    return nb::module_::import_("pyarrow").attr("RecordBatch").attr("_import_from_c")(address_of(given.array), schema);
}

}  // namespace penstock
