// Running values by group, one object for each aggregate. Nulls are skipped; a group without a value gives null.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/columns/array_out.hpp"
#include "kernels/columns/column.hpp"

namespace penstock {

// MinBy and MaxBy read a struct of two columns: the value that is kept, and what it is chosen by.
enum class Op : uint8_t { Count, Sum, Min, Max, Avg, First, Last, MinBy, MaxBy };

class Accumulator {
   public:
    virtual ~Accumulator() = default;
    virtual void grow(size_t groups) = 0;
    virtual void clear() = 0;
    // Takes rows in. Throws std::overflow_error when a value does not fit its type; so does `result`. `column` is
    // nullptr for count(*).
    virtual void add(const Column* column, const uint32_t* groups, int64_t rows) = 0;
    // The same, and the running value after each row.
    virtual ArrayOut add_each(const Column* column, const uint32_t* groups, int64_t rows) = 0;
    virtual ArrayOut result(const std::vector<uint32_t>& groups) const = 0;
    // State is a value and the number of values behind it, for all groups in order.
    virtual ArrayOut state_value(const std::vector<uint32_t>& groups) const = 0;
    virtual ArrayOut state_count(const std::vector<uint32_t>& groups) const = 0;
    virtual void put(const Column& value, const Column& count, int64_t groups) = 0;
};

std::unique_ptr<Accumulator> make_pick_by(Op op, const Type& pair);

// Whether there is an accumulator for the operation on columns of this type.
bool accumulates(Op op, const Type* type);

// `digits` are those of the result where it is a decimal; `scale` is that of a decimal column.
std::unique_ptr<Accumulator> make_accumulator(Op op, const Type* type, int digits, int scale);

}  // namespace penstock
