// Running values by group, one object for each aggregate. Nulls are skipped; a group without a value gives null.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "array_out.hpp"
#include "column.hpp"

namespace penstock {

enum class Op : uint8_t { Count, Sum, Min, Max, Avg, First, Last };

class Accumulator {
   public:
    virtual ~Accumulator() = default;
    virtual void grow(size_t groups) = 0;
    virtual void clear() = 0;
    // Takes rows in; throws std::overflow_error when a sum leaves its type. `column` is nullptr for count(*).
    virtual void add(const Column* column, const uint32_t* groups, int64_t rows) = 0;
    // The same, and the running value after each row.
    virtual ArrayOut add_each(const Column* column, const uint32_t* groups, int64_t rows) = 0;
    virtual ArrayOut result(const std::vector<uint32_t>& groups) const = 0;
    // State is a value and the number of values behind it, for all groups in order.
    virtual ArrayOut state_value(const std::vector<uint32_t>& groups) const = 0;
    virtual ArrayOut state_count(const std::vector<uint32_t>& groups) const = 0;
    virtual void put(const Column& value, const Column& count, int64_t groups) = 0;
};

// Whether there is an accumulator for the operation on columns of this type.
bool accumulates(Op op, const Type* type);

// `digits` bounds sums of decimals; `scale` is that of a decimal column.
std::unique_ptr<Accumulator> make_accumulator(Op op, const Type* type, int digits, int scale);

}  // namespace penstock
