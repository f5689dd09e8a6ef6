#include "kernels/columns/route.hpp"

#include "kernels/columns/hash.hpp"

namespace penstock {

std::vector<uint64_t> hash_batch(const Batch& batch, const std::vector<uint32_t>& columns) {
    std::vector<uint64_t> hashes(static_cast<size_t>(batch.rows), ROW_SEED);
    for (const uint32_t column : columns) hash_column(batch.columns[column], batch.rows, hashes.data());
    return hashes;
}

Order order_by_part(const std::vector<uint64_t>& hashes, uint32_t parts) {
    __extension__ using uint128 = unsigned __int128;
    std::vector<uint32_t> part_of(hashes.size());
    for (size_t i = 0; i < hashes.size(); i++)
        part_of[i] = static_cast<uint32_t>((static_cast<uint128>(hashes[i]) * parts) >> 64);
    return order_by_target(part_of.data(), part_of.size(), parts);
}

Order order_by_target(const uint32_t* part_of, size_t rows, uint32_t parts) {
    Order order;
    order.rows.resize(rows);
    order.ends.assign(parts, 0);
    for (size_t i = 0; i < rows; i++) order.ends[part_of[i]]++;
    int64_t start = 0;
    for (int64_t& end : order.ends) {  // counts become starts, which the next loop moves to the ends
        order.single = order.single || end == static_cast<int64_t>(rows);
        start += end;
        end = start - end;
    }
    for (size_t i = 0; i < rows; i++)
        order.rows[static_cast<size_t>(order.ends[part_of[i]]++)] = static_cast<uint32_t>(i);
    return order;
}

}  // namespace penstock
