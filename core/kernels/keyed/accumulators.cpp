#include "kernels/keyed/accumulators.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "kernels/columns/values.hpp"

namespace penstock {

namespace {

template <class Body>
void each_valid(const Column& column, int64_t rows, Body body) {
    if (column.validity == nullptr) {
        for (int64_t i = 0; i < rows; i++) body(i);
    } else {
        for (int64_t i = 0; i < rows; i++)
            if (column.valid(i)) body(i);
    }
}

ArrayOut counts_out(const std::vector<int64_t>& counts, const std::vector<uint32_t>& groups) {
    FixedOut out(Kind::Int, 8, groups.size());
    for (size_t i = 0; i < groups.size(); i++) out.put(i, counts[groups[i]], true);
    return out.done();
}

void put_counts(std::vector<int64_t>& counts, const Column& column, int64_t groups) {
    for (int64_t g = 0; g < groups; g++) counts[static_cast<size_t>(g)] = column.valid(g) ? column.integer(g) : 0;
}

class Count : public Accumulator {
   public:
    void grow(size_t groups) override { counts_.resize(groups); }
    void clear() override { counts_.clear(); }

    void add(const Column* column, const uint32_t* groups, int64_t rows) override {
        int64_t* counts = counts_.data();
        if (column == nullptr || !column->has_nulls()) {
            for (int64_t i = 0; i < rows; i++) counts[groups[i]]++;
        } else {
            for (int64_t i = 0; i < rows; i++) counts[groups[i]] += column->valid(i);
        }
    }

    ArrayOut add_each(const Column* column, const uint32_t* groups, int64_t rows) override {
        FixedOut out(Kind::Int, 8, static_cast<size_t>(rows));
        for (int64_t i = 0; i < rows; i++) {
            int64_t& count = counts_[groups[i]];
            count += column == nullptr || column->valid(i);
            out.put(static_cast<size_t>(i), count, true);
        }
        return out.done();
    }

    ArrayOut result(const std::vector<uint32_t>& groups) const override { return counts_out(counts_, groups); }

    ArrayOut state_value(const std::vector<uint32_t>& groups) const override {
        ArrayOut nulls;  // of the null type
        nulls.length = nulls.null_count = static_cast<int64_t>(groups.size());
        return nulls;
    }

    ArrayOut state_count(const std::vector<uint32_t>& groups) const override { return counts_out(counts_, groups); }
    void put(const Column&, const Column& count, int64_t groups) override { put_counts(counts_, count, groups); }

   private:
    std::vector<int64_t> counts_;
};

// Shared by sums, averages and picks of numbers: a value and a count by group, in one cell so that a row touches one
// cache line.
template <class T>
struct Cell {
    T value{};
    int64_t count = 0;
};

template <class T>
constexpr Kind STORED = std::is_same_v<T, double> ? Kind::Float : std::is_same_v<T, int128> ? Kind::Decimal : Kind::Int;

template <class T, class Derived>
class Cells : public Accumulator {
   public:
    void grow(size_t groups) override { cells_.resize(groups); }
    void clear() override { cells_.clear(); }

    void add(const Column* column, const uint32_t* groups, int64_t rows) override {
        bool fits = true;
        with_reader<T>(*column, [&](auto read) {
            Cell<T>* cells = cells_.data();
            each_valid(*column, rows, [&](int64_t i) { fits &= self().take_in(cells[groups[i]], read(i)); });
        });
        if (!fits) throw std::overflow_error("sum");
    }

    ArrayOut add_each(const Column* column, const uint32_t* groups, int64_t rows) override {
        bool fits = true;
        FixedOut out = self().output(static_cast<size_t>(rows));
        with_reader<T>(*column, [&](auto read) {
            for (int64_t i = 0; i < rows; i++) {
                Cell<T>& cell = cells_[groups[i]];
                if (column->valid(i)) fits &= self().take_in(cell, read(i));
                out.put(static_cast<size_t>(i), self().show(cell), cell.count > 0);
            }
        });
        if (!fits) throw std::overflow_error("sum");
        return out.done();
    }

    ArrayOut result(const std::vector<uint32_t>& groups) const override {
        FixedOut out = self().output(groups.size());
        for (size_t i = 0; i < groups.size(); i++) {
            const Cell<T>& cell = cells_[groups[i]];
            out.put(i, self().show(cell), cell.count > 0);
        }
        return out.done();
    }

    ArrayOut state_value(const std::vector<uint32_t>& groups) const override {
        FixedOut out = self().stored(groups.size());
        for (size_t i = 0; i < groups.size(); i++) {
            const Cell<T>& cell = cells_[groups[i]];
            out.put(i, cell.value, cell.count > 0);
        }
        return out.done();
    }

    ArrayOut state_count(const std::vector<uint32_t>& groups) const override {
        FixedOut out(Kind::Int, 8, groups.size());
        for (size_t i = 0; i < groups.size(); i++) out.put(i, cells_[groups[i]].count, true);
        return out.done();
    }

    void put(const Column& value, const Column& count, int64_t groups) override {
        with_reader<T>(value, [&](auto read) {
            for (int64_t g = 0; g < groups; g++) {
                Cell<T>& cell = cells_[static_cast<size_t>(g)];
                cell.count = value.valid(g) ? count.integer(g) : 0;
                if (value.valid(g)) cell.value = read(g);
            }
        });
    }

   private:
    const Derived& self() const { return static_cast<const Derived&>(*this); }

    std::vector<Cell<T>> cells_;
};

int128 power_of_ten(int digits) {
    int128 power = 1;
    for (int i = 0; i < digits; i++) power *= 10;
    return power;
}

template <class T>
class Sum : public Cells<T, Sum<T>> {
   public:
    explicit Sum(int digits) : limit_(power_of_ten(digits)) {}

    bool take_in(Cell<T>& cell, T value) const {
        cell.count++;
        if constexpr (std::is_same_v<T, double>) {
            cell.value += value;
            return true;
        } else {
            const bool wrapped = __builtin_add_overflow(cell.value, value, &cell.value);
            if constexpr (std::is_same_v<T, int128>) return !wrapped && -limit_ < cell.value && (cell.value) < limit_;
            return !wrapped;
        }
    }

    T show(const Cell<T>& cell) const { return cell.value; }
    FixedOut output(size_t count) const { return stored(count); }
    FixedOut stored(size_t count) const { return FixedOut(STORED<T>, sizeof(T), count); }

   private:
    int128 limit_;
};

class Average : public Cells<double, Average> {
   public:
    bool take_in(Cell<double>& cell, double value) const {
        cell.count++;
        cell.value += value;
        return true;
    }

    double show(const Cell<double>& cell) const {
        return cell.count == 0 ? 0.0 : cell.value / static_cast<double>(cell.count);
    }

    FixedOut output(size_t count) const { return stored(count); }
    FixedOut stored(size_t count) const { return FixedOut(Kind::Float, 8, count); }
};

// The result has four digits more behind the point than the column, as in Spark. Spark divides to 39 digits, rounds
// half up, and rounds half up again to the type's own digits. This gives the same result without computing the 39
// digits (`test_averages_of_decimals_are_rounded_as_spark_rounds_them`).
class DecimalAverage : public Cells<int128, DecimalAverage> {
   public:
    DecimalAverage(int digits, int scale)
        : limit_(power_of_ten(digits)),
          sum_limit_(power_of_ten(DIGITS_MAX)),
          unit_(power_of_ten(std::min(scale + 4, DIGITS_MAX) - scale)),
          guard_(DIGITS_MAX + 1 - std::min(scale + 4, DIGITS_MAX)) {}

    bool take_in(Cell<int128>& cell, int128 value) const {
        cell.count++;
        const bool wrapped = __builtin_add_overflow(cell.value, value, &cell.value);
        return !wrapped && -sum_limit_ < cell.value && cell.value < sum_limit_;
    }

    int128 show(const Cell<int128>& cell) const {
        if (cell.count == 0) return 0;
        const int128 sum = cell.value < 0 ? -cell.value : cell.value;
        const int128 part = sum % cell.count * unit_;
        int128 found = 0;
        if (__builtin_mul_overflow(sum / cell.count, unit_, &found) || found >= limit_) throw std::overflow_error("avg");
        found += part / cell.count + rounds_up(part % cell.count, cell.count);
        if (found >= limit_) throw std::overflow_error("avg");
        return cell.value < 0 ? -found : found;
    }

    FixedOut output(size_t count) const { return stored(count); }
    FixedOut stored(size_t count) const { return FixedOut(Kind::Decimal, 16, count); }

   private:
    static constexpr int DIGITS_MAX = 38;
    static constexpr int GUARD_SEEN = 19;  // counts have fewer digits; from 19 on, the first rounding changes nothing

    // Whether rest / count, rounded half up to the guard's digits, is a half or more.
    bool rounds_up(int128 rest, int128 count) const {
        if (guard_ >= GUARD_SEEN) return 2 * rest >= count;
        const int128 guard = power_of_ten(guard_);
        return 2 * guard * rest >= (guard - 1) * count;
    }

    int128 limit_;
    int128 sum_limit_;
    int128 unit_;
    int guard_;
};

template <class T>
bool before(T a, T b) {
    if constexpr (std::is_same_v<T, double>) {
        if (std::isnan(a) || std::isnan(b)) return !std::isnan(a);
    }
    return a < b;
}

template <class T>
bool replaces(Op op, bool first, const T& value, const T& held) {
    if (first || op == Op::Last) return true;
    if (op == Op::Min) return before(value, held);
    return op == Op::Max && before(held, value);
}

// min, max, first, last
template <class T>
class Pick : public Cells<T, Pick<T>> {
   public:
    Pick(Op op, const Type& type) : op_(op), type_(type) {}

    bool take_in(Cell<T>& cell, T value) const {
        if (replaces(op_, cell.count == 0, value, cell.value)) cell.value = value;
        cell.count = 1;
        return true;
    }

    T show(const Cell<T>& cell) const { return cell.value; }
    FixedOut output(size_t count) const { return stored(count); }
    FixedOut stored(size_t count) const { return FixedOut(type_.kind, type_.width, count); }

   private:
    Op op_;
    const Type& type_;
};

class PickBytes : public Accumulator {
   public:
    PickBytes(Op op, const Type& type) : op_(op), type_(type) {}

    void grow(size_t groups) override {
        values_.resize(groups);
        present_.resize(groups);
    }

    void clear() override {
        values_.clear();
        present_.clear();
    }

    void add(const Column* column, const uint32_t* groups, int64_t rows) override {
        for (int64_t i = 0; i < rows; i++) take_in(*column, i, groups[i]);
    }

    ArrayOut add_each(const Column* column, const uint32_t* groups, int64_t rows) override {
        BytesOut out(type_, static_cast<size_t>(rows));
        for (int64_t i = 0; i < rows; i++) {
            take_in(*column, i, groups[i]);
            out.put(static_cast<size_t>(i), values_[groups[i]], present_[groups[i]] != 0);
        }
        return out.done();
    }

    ArrayOut result(const std::vector<uint32_t>& groups) const override {
        BytesOut out(type_, groups.size());
        for (size_t i = 0; i < groups.size(); i++) out.put(i, values_[groups[i]], present_[groups[i]] != 0);
        return out.done();
    }

    ArrayOut state_value(const std::vector<uint32_t>& groups) const override { return result(groups); }
    ArrayOut state_count(const std::vector<uint32_t>& groups) const override { return counts_out(present_, groups); }

    void put(const Column& value, const Column&, int64_t groups) override {
        for (int64_t g = 0; g < groups; g++) take_in(value, g, static_cast<uint32_t>(g));
    }

   private:
    void take_in(const Column& column, int64_t i, uint32_t group) {
        if (!column.valid(i)) return;
        std::string_view value;
        if (type_.kind == Kind::Bytes) {
            value = column.bytes(i);
        } else {
            const auto* start = reinterpret_cast<const char*>(column.values);
            value = {start + (column.offset + i) * type_.width, static_cast<size_t>(type_.width)};
        }
        std::string& held = values_[group];
        if (replaces(op_, present_[group] == 0, value, std::string_view(held))) held.assign(value);
        present_[group] = 1;
    }

    Op op_;
    const Type& type_;
    std::vector<std::string> values_;
    std::vector<int64_t> present_;
};

bool is_whole(const Type& type) { return type.kind == Kind::Int || type.kind == Kind::UInt; }
bool is_real(const Type& type) { return type.kind == Kind::Float && type.width >= 4; }
bool is_decimal(const Type& type) { return type.kind == Kind::Decimal && type.width == 16; }

std::unique_ptr<Accumulator> make_pick(Op op, const Type& type) {
    if (is_real(type)) return std::make_unique<Pick<double>>(op, type);
    if (is_decimal(type)) return std::make_unique<Pick<int128>>(op, type);
    if (type.kind == Kind::UInt) return std::make_unique<Pick<uint64_t>>(op, type);
    if (type.kind == Kind::Int || type.kind == Kind::Bool) return std::make_unique<Pick<int64_t>>(op, type);
    return std::make_unique<PickBytes>(op, type);
}

}  // namespace

bool accumulates(Op op, const Type* type) {
    if (op == Op::Count) return true;
    if (type == nullptr || type->dictionary) return false;
    if (op == Op::MinBy || op == Op::MaxBy) {
        return type->kind == Kind::Struct && type->children.size() == 2 && accumulates(Op::Last, &type->children[0]) &&
               accumulates(Op::Min, &type->children[1]);
    }
    const bool number = is_whole(*type) || is_real(*type) || is_decimal(*type);
    if (op == Op::Sum) return number && !(type->kind == Kind::UInt && type->width == 8);
    if (op == Op::Avg) return number;
    return number || type->kind == Kind::Bool || type->kind == Kind::Bytes || type->kind == Kind::Fixed;
}

std::unique_ptr<Accumulator> make_accumulator(Op op, const Type* type, int digits, int scale) {
    if (!accumulates(op, type)) throw std::invalid_argument("no accumulator for this operation on this type");
    if (op == Op::Count) return std::make_unique<Count>();
    if (op == Op::MinBy || op == Op::MaxBy) return make_pick_by(op, *type);
    if (op == Op::Sum) {
        if (is_decimal(*type)) return std::make_unique<Sum<int128>>(digits);
        if (is_real(*type)) return std::make_unique<Sum<double>>(0);
        return std::make_unique<Sum<int64_t>>(0);
    }
    if (op == Op::Avg) {
        if (is_decimal(*type)) return std::make_unique<DecimalAverage>(digits, scale);
        return std::make_unique<Average>();
    }
    return make_pick(op, *type);
}

}  // namespace penstock
