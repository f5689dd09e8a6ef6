// The functions behind `run/columns/kernels.py`, which checks arguments. An exception from here is a bug or an
// overflow.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "kernels/columns/exchange.hpp"
#include "kernels/columns/route.hpp"
#include "kernels/columns/split_words.hpp"
#include "kernels/columns/take.hpp"

namespace nb = nanobind;

namespace penstock {

void bind_aggregate(nb::module_& module);
void bind_keyset(nb::module_& module);
void bind_rows(nb::module_& module);

namespace {

nb::bytes hash_rows(const Layout& layout, nb::handle batch, const std::vector<uint32_t>& columns) {
    const auto imported = import_batch(layout, batch);
    std::vector<uint64_t> hashes;
    {
        const Unlocked unlocked(imported->rows);
        hashes = hash_batch(*imported, columns);
    }
    return nb::bytes(hashes.data(), hashes.size() * sizeof(uint64_t));
}

nb::object take_batch(const std::shared_ptr<const Batch>& batch, const std::vector<uint32_t>& rows, nb::handle schema) {
    std::vector<ArrayOut> taken;
    taken.reserve(batch->columns.size());
    {
        const Unlocked unlocked(static_cast<int64_t>(rows.size()));
        for (const Column& column : batch->columns)
            taken.push_back(take(column, rows.data(), static_cast<int64_t>(rows.size()), batch));
    }
    return to_pyarrow(static_cast<int64_t>(rows.size()), std::move(taken), schema);
}

// The reordered batch (the batch itself where one part has every row) and where each part ends. Where `gather` is false,
// the permutation comes instead of the batch.
nb::tuple partition(const Layout& layout, nb::handle batch, const std::vector<uint32_t>& columns, uint32_t parts,
                    nb::handle schema, bool gather) {
    const auto imported = import_batch(layout, batch);
    Order order;
    {
        const Unlocked unlocked(imported->rows);
        order = order_by_part(hash_batch(*imported, columns), parts);
    }
    nb::object reordered;
    if (order.single) {
        reordered = nb::borrow(batch);
    } else if (gather) {
        reordered = take_batch(imported, order.rows, schema);
    } else {
        reordered = nb::bytes(order.rows.data(), order.rows.size() * sizeof(uint32_t));
    }
    return nb::make_tuple(reordered, nb::cast(order.ends));
}

nb::object split_words(const Layout& layout, nb::handle batch, uint32_t column, const std::string& separator,
                       const std::vector<uint32_t>& keep, nb::handle schema) {
    const auto imported = import_batch(layout, batch);
    std::vector<ArrayOut> columns;
    int64_t count = 0;
    {
        const Unlocked unlocked(imported->rows);
        Words words = split_column(imported->columns[column], separator, !keep.empty());
        count = words.pieces.length;
        columns.push_back(std::move(words.pieces));
        for (const uint32_t kept : keep) columns.push_back(take(imported->columns[kept], words.rows.data(), count, imported));
    }
    return to_pyarrow(count, std::move(columns), schema);
}

}  // namespace

void bind_kernels(nb::module_& module) {
    nb::set_leak_warnings(false);  // a row or a cached layout that lives until the interpreter ends is no leak
    nb::class_<Layout>(module, "Layout")
        .def(nb::new_(&make_layout))
        .def("readable", [](const Layout& layout, uint32_t column) { return layout.root.children.at(column).readable(); });
    module.def("hash_rows", &hash_rows);
    module.def("partition", &partition);
    module.def("split_words", &split_words);
    bind_aggregate(module);
    bind_keyset(module);
    bind_rows(module);
}

}  // namespace penstock
