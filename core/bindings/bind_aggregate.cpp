// Keyed aggregation for Python: keys to groups, then one loop for each aggregate over the batch.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <tuple>

#include "kernels/keyed/accumulators.hpp"
#include "kernels/columns/exchange.hpp"
#include "kernels/keyed/group_numbers.hpp"
#include "kernels/columns/values.hpp"

namespace nb = nanobind;

namespace penstock {

namespace {

using Specification = std::tuple<int, int64_t, int, int>;  // operation, column or -1, digits of the result, scale

const Type* type_at(const Layout& layout, int64_t column) {
    return column < 0 ? nullptr : &layout.root.children.at(static_cast<size_t>(column));
}

std::vector<const Type*> types_at(const Layout& layout, const std::vector<uint32_t>& columns) {
    std::vector<const Type*> types;
    for (const uint32_t column : columns) types.push_back(type_at(layout, column));
    return types;
}

class NativeAggregate {
   public:
    NativeAggregate(nb::object layout, std::vector<uint32_t> keys, const std::vector<Specification>& specifications)
        : holder_(std::move(layout)),
          layout_(nb::cast<const Layout&>(holder_)),
          keys_(std::move(keys)),
          table_(types_at(layout_, keys_)) {
        for (const auto& [op, column, digits, scale] : specifications) {
            columns_.push_back(column);
            accumulators_.push_back(make_accumulator(static_cast<Op>(op), type_at(layout_, column), digits, scale));
        }
    }

    NativeAggregate(const NativeAggregate&) = delete;
    NativeAggregate& operator=(const NativeAggregate&) = delete;

    static bool supports(const Layout& layout, const std::vector<uint32_t>& keys,
                         const std::vector<Specification>& specifications) {
        for (const Type* type : types_at(layout, keys))
            if (!KeyTable::supports(*type)) return false;
        return std::all_of(specifications.begin(), specifications.end(), [&](const Specification& one) {
            return accumulates(static_cast<Op>(std::get<0>(one)), type_at(layout, std::get<1>(one)));
        });
    }

    size_t size() const { return table_.size(); }

    void clear() {
        table_.clear();
        for (auto& accumulator : accumulators_) accumulator->clear();
        touched_.clear();
        touch_round_.clear();
        round_ = 1;
    }

    void update(nb::handle batch) {
        const auto imported = import_batch(layout_, batch);
        const Unlocked unlocked(imported->rows);
        find(*imported);
        each_aggregate([&](size_t a) { accumulators_[a]->add(column(*imported, a), groups_.data(), imported->rows); });
    }

    // The keys are the batch's own columns, handed on without a copy.
    nb::object update_each(nb::handle batch, nb::handle schema) {
        const auto imported = import_batch(layout_, batch);
        std::vector<ArrayOut> out;
        {
            const Unlocked unlocked(imported->rows);
            for (const uint32_t key : keys_) {
                out.emplace_back();
                out.back().shared = imported->columns[key].array;
                out.back().keep = imported;
            }
            find(*imported);
            each_aggregate([&](size_t a) {
                out.push_back(accumulators_[a]->add_each(column(*imported, a), groups_.data(), imported->rows));
            });
        }
        return to_pyarrow(imported->rows, std::move(out), schema);
    }

    nb::object changed(nb::handle schema) {
        nb::object batch = results(touched_, schema);
        touched_.clear();
        round_++;
        return batch;
    }

    nb::object rows(nb::handle schema) const { return results(everyone(), schema); }

    nb::object state(nb::handle schema) const {
        const std::vector<uint32_t> groups = everyone();
        std::vector<ArrayOut> out = table_.columns(groups);
        for (const auto& accumulator : accumulators_) {
            out.push_back(accumulator->state_value(groups));
            out.push_back(accumulator->state_count(groups));
        }
        std::vector<int64_t> rank(groups.size(), -1);
        for (size_t i = 0; i < touched_.size(); i++) rank[touched_[i]] = static_cast<int64_t>(i);
        FixedOut ranks(Kind::Int, 8, groups.size());
        for (size_t g = 0; g < groups.size(); g++) ranks.put(g, rank[g], rank[g] >= 0);
        out.push_back(ranks.done());
        return to_pyarrow(static_cast<int64_t>(groups.size()), std::move(out), schema);
    }

    // False where keys repeat or ranks are not a permutation; nothing is kept then.
    bool put_state(const Layout& layout, nb::handle batch) {
        const auto imported = import_batch(layout, batch);
        clear();
        const bool sound = put_keys(*imported) && put_touched(*imported);
        if (!sound) {
            clear();
            return false;
        }
        for (size_t a = 0; a < accumulators_.size(); a++) {
            const size_t at = keys_.size() + 2 * a;
            accumulators_[a]->put(imported->columns[at], imported->columns[at + 1], imported->rows);
        }
        return true;
    }

   private:
    // An overflow names the aggregate by its number.
    template <class Body>
    void each_aggregate(Body body) const {
        for (size_t a = 0; a < accumulators_.size(); a++) {
            try {
                body(a);
            } catch (const std::overflow_error&) {
                throw std::overflow_error(std::to_string(a));
            }
        }
    }

    const Column* column(const Batch& batch, size_t a) const {
        return columns_[a] < 0 ? nullptr : &batch.columns[static_cast<size_t>(columns_[a])];
    }

    void find(const Batch& batch) {
        std::vector<const Column*> keys;
        for (const uint32_t key : keys_) keys.push_back(&batch.columns[key]);
        assign(keys, batch.rows);
        for (int64_t i = 0; i < batch.rows; i++) {
            const uint32_t group = groups_[static_cast<size_t>(i)];
            if (touch_round_[group] != round_) {
                touch_round_[group] = round_;
                touched_.push_back(group);
            }
        }
    }

    void assign(const std::vector<const Column*>& keys, int64_t rows) {
        groups_.resize(static_cast<size_t>(rows));
        table_.find(keys, rows, groups_.data());
        touch_round_.resize(table_.size());
        for (auto& accumulator : accumulators_) accumulator->grow(table_.size());
    }

    bool put_keys(const Batch& batch) {
        std::vector<const Column*> keys;
        for (size_t k = 0; k < keys_.size(); k++) keys.push_back(&batch.columns[k]);
        assign(keys, batch.rows);
        return table_.size() == static_cast<size_t>(batch.rows);
    }

    bool put_touched(const Batch& batch) {
        const Column& ranks = batch.columns.back();
        std::vector<uint32_t> ranked(static_cast<size_t>(batch.rows), UINT32_MAX);
        size_t count = 0;
        for (int64_t g = 0; g < batch.rows; g++) {
            if (!ranks.valid(g)) continue;
            const int64_t rank = ranks.integer(g);
            if (rank < 0 || rank >= batch.rows || ranked[static_cast<size_t>(rank)] != UINT32_MAX) return false;
            ranked[static_cast<size_t>(rank)] = static_cast<uint32_t>(g);
            touch_round_[static_cast<size_t>(g)] = round_;
            count++;
        }
        touched_.assign(ranked.begin(), ranked.begin() + static_cast<std::ptrdiff_t>(count));
        return std::find(touched_.begin(), touched_.end(), UINT32_MAX) == touched_.end();
    }

    std::vector<uint32_t> everyone() const {
        std::vector<uint32_t> groups(table_.size());
        std::iota(groups.begin(), groups.end(), 0U);
        return groups;
    }

    nb::object results(const std::vector<uint32_t>& groups, nb::handle schema) const {
        std::vector<ArrayOut> out;
        {
            const Unlocked unlocked(static_cast<int64_t>(groups.size()));
            out = table_.columns(groups);
            each_aggregate([&](size_t a) { out.push_back(accumulators_[a]->result(groups)); });
        }
        return to_pyarrow(static_cast<int64_t>(groups.size()), std::move(out), schema);
    }

    nb::object holder_;  // keeps the layout, into which types point
    const Layout& layout_;
    std::vector<uint32_t> keys_;
    std::vector<int64_t> columns_;
    KeyTable table_;
    std::vector<std::unique_ptr<Accumulator>> accumulators_;
    std::vector<uint32_t> groups_;  // of the current batch's rows
    std::vector<uint32_t> touched_;
    std::vector<uint64_t> touch_round_;
    uint64_t round_ = 1;
};

}  // namespace

void bind_aggregate(nb::module_& module) {
    nb::class_<NativeAggregate>(module, "NativeAggregate")
        .def(nb::init<nb::object, std::vector<uint32_t>, const std::vector<Specification>&>())
        .def_static("supports", &NativeAggregate::supports)
        .def("__len__", &NativeAggregate::size)
        .def("clear", &NativeAggregate::clear)
        .def("update", &NativeAggregate::update)
        .def("update_each", &NativeAggregate::update_each)
        .def("changed", &NativeAggregate::changed)
        .def("rows", &NativeAggregate::rows)
        .def("state", &NativeAggregate::state)
        .def("put_state", &NativeAggregate::put_state);
}

}  // namespace penstock
