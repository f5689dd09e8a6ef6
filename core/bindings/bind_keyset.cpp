// Which rows hold a combination of values for the first time: distinct values by key, for Python.
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <numeric>

#include "kernels/columns/exchange.hpp"
#include "kernels/keyed/group_numbers.hpp"
#include "kernels/columns/values.hpp"

namespace nb = nanobind;

namespace penstock {

namespace {

std::vector<const Type*> types_of(const Layout& layout) {
    std::vector<const Type*> types;
    for (const Type& type : layout.root.children) types.push_back(&type);
    return types;
}

class KeySet {
   public:
    explicit KeySet(nb::object layout)
        : holder_(std::move(layout)), layout_(nb::cast<const Layout&>(holder_)), table_(types_of(layout_)) {}

    KeySet(const KeySet&) = delete;
    KeySet& operator=(const KeySet&) = delete;

    static bool supports(const Layout& layout) {
        const auto& children = layout.root.children;
        return std::all_of(children.begin(), children.end(), [](const Type& type) { return KeyTable::supports(type); });
    }

    size_t size() const { return table_.size(); }

    // A column of booleans: whether a row holds a new combination. Groups are numbered in order of appearance.
    nb::object first_seen(nb::handle batch, nb::handle schema) {
        const auto imported = import_batch(layout_, batch);
        std::vector<ArrayOut> out;
        {
            const Unlocked unlocked(imported->rows);
            std::vector<const Column*> columns;
            for (const Column& column : imported->columns) columns.push_back(&column);
            groups_.resize(static_cast<size_t>(imported->rows));
            size_t known = table_.size();
            table_.find(columns, imported->rows, groups_.data());
            FixedOut firsts(Kind::Bool, 1, groups_.size());
            for (size_t i = 0; i < groups_.size(); i++) {
                const bool first = groups_[i] == known;
                known += first;
                firsts.put(i, static_cast<uint8_t>(first), true);
            }
            out.push_back(firsts.done());
        }
        return to_pyarrow(imported->rows, std::move(out), schema);
    }

    nb::object rows(nb::handle schema) const {
        std::vector<uint32_t> groups(table_.size());
        std::iota(groups.begin(), groups.end(), 0U);
        return to_pyarrow(static_cast<int64_t>(groups.size()), table_.columns(groups), schema);
    }

   private:
    nb::object holder_;  // keeps the layout, into which types point
    const Layout& layout_;
    KeyTable table_;
    std::vector<uint32_t> groups_;  // of the current batch's rows
};

}  // namespace

void bind_keyset(nb::module_& module) {
    nb::class_<KeySet>(module, "KeySet")
        .def(nb::init<nb::object>())
        .def_static("supports", &KeySet::supports)
        .def("__len__", &KeySet::size)
        .def("first_seen", &KeySet::first_seen)
        .def("rows", &KeySet::rows);
}

}  // namespace penstock
