// Hash routing: which rows go to which part, and the batch reordered so that each part is one slice.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/columns/column.hpp"

namespace penstock {

std::vector<uint64_t> hash_batch(const Batch& batch, const std::vector<uint32_t>& columns);

struct Order {
    std::vector<uint32_t> rows;  // all rows, by part and then by position
    std::vector<int64_t> ends;   // where each part ends
    bool single = false;         // one part has them all
};

// A stable counting sort by the upper bits of the hashes.
Order order_by_part(const std::vector<uint64_t>& hashes, uint32_t parts);

// The same for parts that the caller chose; each is below `parts`.
Order order_by_target(const uint32_t* part_of, size_t rows, uint32_t parts);

}  // namespace penstock
