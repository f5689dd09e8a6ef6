// Rows of a column by index, for every readable type.
#pragma once

#include "kernels/columns/array_out.hpp"
#include "kernels/columns/column.hpp"

namespace penstock {

// Copies up to 16 bytes at once where both sides have room for it: words are short, and a call of memcpy costs more.
inline void copy_short(uint8_t* to, const uint8_t* from, size_t size, bool room) {
    if (room && size <= 16) {
        std::memcpy(to, from, 16);
    } else if (size > 0) {
        std::memcpy(to, from, size);
    }
}

// Dictionaries are shared with the batch, which `keep` holds. Throws std::overflow_error where text would not fit 32-bit
// offsets.
ArrayOut take(const Column& column, const uint32_t* rows, int64_t count, const std::shared_ptr<const Batch>& keep);

}  // namespace penstock
