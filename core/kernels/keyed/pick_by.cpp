// min_by and max_by: the value of one column in the row where another is smallest or largest. Of equal rows the last
// counts, as in Spark on rows in order; rows without an ordering value do not count, a value itself may be null.
#include <cmath>
#include <cstring>
#include <string>
#include <type_traits>

#include "kernels/keyed/accumulators.hpp"
#include "kernels/columns/values.hpp"

namespace penstock {

namespace {

// One value of any type for each group, as its bytes.
class Held {
   public:
    explicit Held(const Type& type) : type_(type) {}

    void grow(size_t groups) {
        bytes_.resize(groups);
        valid_.resize(groups);
    }

    void clear() {
        bytes_.clear();
        valid_.clear();
    }

    void put(uint32_t group, const Column& column, int64_t i) {
        valid_[group] = column.valid(i);
        if (!valid_[group]) return;
        if (type_.kind == Kind::Bytes) {
            bytes_[group].assign(column.bytes(i));
        } else if (type_.kind == Kind::Bool) {
            bytes_[group].assign(1, static_cast<char>(column.bit(i)));
        } else {
            const auto* start = reinterpret_cast<const char*>(column.values) + (column.offset + i) * type_.width;
            bytes_[group].assign(start, static_cast<size_t>(type_.width));
        }
    }

    void copy(size_t group, const Held& other, uint32_t from) {
        valid_[group] = other.valid_[from];
        if (valid_[group]) bytes_[group] = other.bytes_[from];
    }

    // The values of `count` groups, which `group_of` names.
    template <class GroupOf>
    ArrayOut out(size_t count, GroupOf group_of) const {
        if (type_.kind == Kind::Bytes || type_.width > 8 || type_.kind == Kind::Fixed || type_.kind == Kind::Decimal) {
            BytesOut out(type_, count);
            for (size_t i = 0; i < count; i++) out.put(i, bytes_[group_of(i)], valid_[group_of(i)] != 0);
            return out.done();
        }
        FixedOut out(type_.kind, type_.width, count);
        for (size_t i = 0; i < count; i++) {
            const std::string& bytes = bytes_[group_of(i)];
            uint64_t word = 0;
            std::memcpy(&word, bytes.data(), bytes.size());
            out.put(i, word, valid_[group_of(i)] != 0);
        }
        return out.done();
    }

   private:
    const Type& type_;
    std::vector<std::string> bytes_;
    std::vector<uint8_t> valid_;
};

bool before(double a, double b) { return std::isnan(a) || std::isnan(b) ? !std::isnan(a) : a < b; }
template <class T>
bool before(const T& a, const T& b) {
    return a < b;
}

// Calls body with a function i -> ordering value.
template <class T, class Body>
void with_order(const Column& by, Body body) {
    if constexpr (std::is_same_v<T, std::string>) {
        if (by.type->kind == Kind::Bytes) return body([&by](int64_t i) { return by.bytes(i); });
        const auto width = static_cast<size_t>(by.type->width);
        body([&by, width](int64_t i) {
            const auto* start = reinterpret_cast<const char*>(by.values);
            return std::string_view(start + (by.offset + i) * static_cast<int64_t>(width), width);
        });
    } else {
        with_reader<T>(by, body);
    }
}

// A batch of pairs is a struct column; where it is a slice, its children begin earlier.
template <class T>
class PickBy : public Accumulator {
   public:
    PickBy(Op op, const Type& pair) : op_(op), values_(pair.children[0]), orders_(pair.children[1]) {}

    void grow(size_t groups) override {
        values_.grow(groups);
        orders_.grow(groups);
        best_.resize(groups);
        found_.resize(groups);
    }

    void clear() override {
        values_.clear();
        orders_.clear();
        best_.clear();
        found_.clear();
    }

    void add(const Column* pair, const uint32_t* groups, int64_t rows) override {
        take_in(*pair, groups, rows, [](int64_t) {});
    }

    ArrayOut add_each(const Column* pair, const uint32_t* groups, int64_t rows) override {
        Held running(*pair->children[0].type);
        running.grow(static_cast<size_t>(rows));
        take_in(*pair, groups, rows, [&](int64_t i) { running.copy(static_cast<size_t>(i), values_, groups[i]); });
        return running.out(static_cast<size_t>(rows), [](size_t i) { return i; });
    }

    ArrayOut result(const std::vector<uint32_t>& groups) const override {
        return values_.out(groups.size(), [&](size_t i) { return groups[i]; });
    }

    ArrayOut state_value(const std::vector<uint32_t>& groups) const override {
        ArrayOut pair;
        pair.length = static_cast<int64_t>(groups.size());
        pair.buffers.emplace_back();  // no pair is null itself
        pair.children.push_back(result(groups));
        pair.children.push_back(orders_.out(groups.size(), [&](size_t i) { return groups[i]; }));
        return pair;
    }

    ArrayOut state_count(const std::vector<uint32_t>& groups) const override {
        FixedOut out(Kind::Int, 8, groups.size());
        for (size_t i = 0; i < groups.size(); i++) out.put(i, int64_t{found_[groups[i]]}, true);
        return out.done();
    }

    void put(const Column& pair, const Column&, int64_t groups) override {
        std::vector<uint32_t> numbers(static_cast<size_t>(groups));
        for (size_t g = 0; g < numbers.size(); g++) numbers[g] = static_cast<uint32_t>(g);
        add(&pair, numbers.data(), groups);
    }

   private:
    template <class After>
    void take_in(const Column& pair, const uint32_t* groups, int64_t rows, After after) {
        const Column& value = pair.children[0];
        const Column& by = pair.children[1];
        with_order<T>(by, [&](auto read) {
            for (int64_t i = 0; i < rows; i++) {
                const int64_t at = pair.offset + i;
                const uint32_t group = groups[i];
                if (by.valid(at)) {
                    const auto order = read(at);
                    const bool stays = found_[group] != 0 && (op_ == Op::MinBy ? before(view(best_[group]), order)
                                                                               : before(order, view(best_[group])));
                    if (!stays) {
                        best_[group] = T(order);
                        orders_.put(group, by, at);
                        values_.put(group, value, at);
                        found_[group] = 1;
                    }
                }
                after(i);
            }
        });
    }

    static auto view(const T& held) {
        if constexpr (std::is_same_v<T, std::string>)
            return std::string_view(held);
        else
            return held;
    }

    Op op_;
    Held values_;
    Held orders_;
    std::vector<T> best_;
    std::vector<uint8_t> found_;
};

}  // namespace

std::unique_ptr<Accumulator> make_pick_by(Op op, const Type& pair) {
    const Type& by = pair.children[1];
    if (by.kind == Kind::Float) return std::make_unique<PickBy<double>>(op, pair);
    if (by.kind == Kind::Decimal) return std::make_unique<PickBy<int128>>(op, pair);
    if (by.kind == Kind::UInt) return std::make_unique<PickBy<uint64_t>>(op, pair);
    if (by.kind == Kind::Int || by.kind == Kind::Bool) return std::make_unique<PickBy<int64_t>>(op, pair);
    return std::make_unique<PickBy<std::string>>(op, pair);
}

}  // namespace penstock
