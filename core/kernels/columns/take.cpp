// One gather loop for each width; nested types gather their children recursively.
#include "kernels/columns/take.hpp"

#include <limits>
#include <stdexcept>

namespace penstock {

namespace {

using Keep = std::shared_ptr<const Batch>;

Buffer take_validity(const Column& column, const uint32_t* rows, int64_t count, int64_t& null_count) {
    null_count = column.type->kind == Kind::Null ? count : 0;
    if (column.validity == nullptr) return Buffer();
    Buffer bits(bit_bytes(count));
    std::memset(bits.data(), 0, bit_bytes(count));
    uint8_t* out = bits.data();
    for (int64_t i = 0; i < count; i++) {
        const bool valid = column.valid(rows[i]);
        null_count += !valid;
        out[i >> 3] = static_cast<uint8_t>(out[i >> 3] | (valid << (i & 7)));
    }
    return bits;
}

template <size_t Width>
Buffer take_fixed(const Column& column, const uint32_t* rows, int64_t count) {
    Buffer out(static_cast<size_t>(count) * Width);
    const uint8_t* from = column.values + column.offset * static_cast<int64_t>(Width);
    uint8_t* to = out.data();
    for (int64_t i = 0; i < count; i++) std::memcpy(to + static_cast<size_t>(i) * Width, from + rows[i] * Width, Width);
    return out;
}

Buffer take_values(const Column& column, const uint32_t* rows, int64_t count) {
    const auto width = static_cast<size_t>(column.type->width);
    switch (width) {
        case 1: return take_fixed<1>(column, rows, count);
        case 2: return take_fixed<2>(column, rows, count);
        case 4: return take_fixed<4>(column, rows, count);
        case 8: return take_fixed<8>(column, rows, count);
        case 16: return take_fixed<16>(column, rows, count);
        default: break;
    }
    Buffer out(static_cast<size_t>(count) * width);
    const uint8_t* from = column.values + static_cast<size_t>(column.offset) * width;
    for (int64_t i = 0; i < count && width > 0; i++)
        std::memcpy(out.data() + static_cast<size_t>(i) * width, from + rows[i] * width, width);
    return out;
}

Buffer take_bits(const Column& column, const uint32_t* rows, int64_t count) {
    Buffer bits(bit_bytes(count));
    if (count > 0) std::memset(bits.data(), 0, bit_bytes(count));
    uint8_t* out = bits.data();
    for (int64_t i = 0; i < count; i++)
        out[i >> 3] = static_cast<uint8_t>(out[i >> 3] | (column.bit(rows[i]) << (i & 7)));
    return bits;
}

// New offsets; rows that are null take no room.
template <class Offset>
Buffer take_offsets(const Column& column, const uint32_t* rows, int64_t count, int64_t& total) {
    Buffer out((static_cast<size_t>(count) + 1) * sizeof(Offset));
    const Offset* ends = column.ends<Offset>();
    auto* to = out.as<Offset>();
    total = 0;
    to[0] = 0;
    for (int64_t i = 0; i < count; i++) {
        if (column.validity == nullptr || column.valid(rows[i])) total += ends[rows[i] + 1] - ends[rows[i]];
        if (total > std::numeric_limits<Offset>::max()) throw std::overflow_error("text is longer than 2 GiB in one batch");
        to[i + 1] = static_cast<Offset>(total);
    }
    return out;
}

template <class Offset>
void take_bytes(const Column& column, const uint32_t* rows, int64_t count, ArrayOut& out) {
    int64_t total = 0;
    out.buffers.push_back(take_offsets<Offset>(column, rows, count, total));
    Buffer bytes(static_cast<size_t>(total) + 16);  // room for copies that overshoot
    const Offset* ends = column.ends<Offset>();
    const Offset* to = out.buffers.back().as<Offset>();
    const int64_t last = column.length == 0 ? 0 : ends[column.length];
    for (int64_t i = 0; i < count; i++) {
        const int64_t from = ends[rows[i]];
        copy_short(bytes.data() + to[i], column.values + from, static_cast<size_t>(to[i + 1] - to[i]), from + 16 <= last);
    }
    out.buffers.push_back(std::move(bytes));
}

template <class Offset>
void take_lists(const Column& column, const uint32_t* rows, int64_t count, const Keep& keep, ArrayOut& out) {
    int64_t total = 0;
    out.buffers.push_back(take_offsets<Offset>(column, rows, count, total));
    const Offset* ends = column.ends<Offset>();
    std::vector<uint32_t> items;
    items.reserve(static_cast<size_t>(total));
    for (int64_t i = 0; i < count; i++)
        if (column.valid(rows[i]))
            for (Offset item = ends[rows[i]]; item < ends[rows[i] + 1]; item++) items.push_back(static_cast<uint32_t>(item));
    out.children.push_back(take(column.children[0], items.data(), total, keep));
}

void take_fixed_lists(const Column& column, const uint32_t* rows, int64_t count, const Keep& keep, ArrayOut& out) {
    const int64_t size = column.type->width;
    std::vector<uint32_t> items;
    items.reserve(static_cast<size_t>(count * size));
    for (int64_t i = 0; i < count; i++)
        for (int64_t k = 0; k < size; k++) items.push_back(static_cast<uint32_t>((column.offset + rows[i]) * size + k));
    out.children.push_back(take(column.children[0], items.data(), count * size, keep));
}

void take_struct(const Column& column, const uint32_t* rows, int64_t count, const Keep& keep, ArrayOut& out) {
    std::vector<uint32_t> inside(rows, rows + count);
    for (uint32_t& row : inside) row += static_cast<uint32_t>(column.offset);
    for (const Column& child : column.children) out.children.push_back(take(child, inside.data(), count, keep));
}

}  // namespace

ArrayOut take(const Column& column, const uint32_t* rows, int64_t count, const Keep& keep) {
    if (column.length + column.offset > std::numeric_limits<uint32_t>::max())
        throw std::overflow_error("a batch has more than 4 billion values in one column");
    ArrayOut out;
    out.length = count;
    if (column.type->kind == Kind::Null) {
        out.null_count = count;
        return out;
    }
    out.buffers.push_back(take_validity(column, rows, count, out.null_count));
    switch (column.type->kind) {
        case Kind::Bool: out.buffers.push_back(take_bits(column, rows, count)); break;
        case Kind::Bytes:
            column.type->wide ? take_bytes<int64_t>(column, rows, count, out) : take_bytes<int32_t>(column, rows, count, out);
            break;
        case Kind::List:
            column.type->wide ? take_lists<int64_t>(column, rows, count, keep, out)
                              : take_lists<int32_t>(column, rows, count, keep, out);
            break;
        case Kind::FixedList: take_fixed_lists(column, rows, count, keep, out); break;
        case Kind::Struct: take_struct(column, rows, count, keep, out); break;
        default: out.buffers.push_back(take_values(column, rows, count));
    }
    if (column.dictionary) {
        out.shared_dictionary = column.array->dictionary;
        out.keep = keep;
    }
    return out;
}

}  // namespace penstock
