// Text into words.
#pragma once

#include <string_view>
#include <vector>

#include "kernels/columns/array_out.hpp"
#include "kernels/columns/column.hpp"

namespace penstock {

struct Words {
    ArrayOut pieces;             // text with the offsets' width of the column
    std::vector<uint32_t> rows;  // the row that each piece comes from
};

// One piece for each run between separators that is not empty. With `want_rows` false, `rows` stays empty.
Words split_column(const Column& column, std::string_view separator, bool want_rows);

}  // namespace penstock
