// Column by column: one tight loop for each family of types, and recursion for nested ones.
#include "kernels/columns/hash.hpp"

#include <vector>

namespace penstock {

namespace {

uint64_t hash_decimal(const Column& column, int64_t i) {
    const int32_t width = column.type->width;
    const uint8_t* at = column.values + (column.offset + i) * width;
    int64_t words[4];
    int count = width / 8;
    if (width == 4) {
        words[0] = column.load<int32_t>(column.offset + i);
    } else {
        std::memcpy(words, at, static_cast<size_t>(width));
    }
    if (width <= 8) {  // as if it were 128 bits wide
        words[1] = words[0] >> 63;
        count = 2;
    }
    uint64_t state = hash_word(static_cast<uint64_t>(words[0]));
    for (int w = 1; w < count; w++) state = combine(state, static_cast<uint64_t>(words[w]));
    return state;
}

uint64_t hash_items(const Column& items, int64_t start, int64_t end) {
    uint64_t state = hash_word(static_cast<uint64_t>(end - start));
    for (int64_t i = start; i < end; i++) state = combine(state, hash_value(items, i));
    return state;
}

uint64_t hash_valid(const Column& column, int64_t i) {
    const Type& type = *column.type;
    switch (type.kind) {
        case Kind::Bool: return hash_word(column.bit(i));
        case Kind::Int:
        case Kind::UInt: return hash_word(static_cast<uint64_t>(column.integer(i)));
        case Kind::Float: return hash_real(column.real(i));
        case Kind::Decimal: return hash_decimal(column, i);
        case Kind::Bytes: return hash_bytes(column.bytes(i));
        case Kind::Fixed: {
            const auto* at = reinterpret_cast<const char*>(column.values) + (column.offset + i) * type.width;
            return hash_bytes({at, static_cast<size_t>(type.width)});
        }
        case Kind::List: return hash_items(column.children[0], column.start_of(i), column.end_of(i));
        case Kind::FixedList:
            return hash_items(column.children[0], (column.offset + i) * type.width, (column.offset + i + 1) * type.width);
        case Kind::Struct: {
            uint64_t state = K1;
            for (const Column& child : column.children) state = combine(state, hash_value(child, column.offset + i));
            return state;
        }
        default: return NULL_HASH;
    }
}

template <class Hash>
void mix(const Column& column, int64_t rows, uint64_t* hashes, Hash hash) {
    if (column.validity == nullptr) {
        for (int64_t i = 0; i < rows; i++) hashes[i] = combine(hashes[i], hash(i));
    } else {
        for (int64_t i = 0; i < rows; i++) hashes[i] = combine(hashes[i], column.valid(i) ? hash(i) : NULL_HASH);
    }
}

template <class T>
void mix_integers(const Column& column, int64_t rows, uint64_t* hashes) {
    const T* data = column.data<T>();
    mix(column, rows, hashes, [data](int64_t i) { return hash_word(static_cast<uint64_t>(int64_t{data[i]})); });
}

void mix_integers(const Column& column, int64_t rows, uint64_t* hashes) {
    const bool is_signed = column.type->kind == Kind::Int;
    switch (column.type->width) {
        case 1: return is_signed ? mix_integers<int8_t>(column, rows, hashes) : mix_integers<uint8_t>(column, rows, hashes);
        case 2: return is_signed ? mix_integers<int16_t>(column, rows, hashes) : mix_integers<uint16_t>(column, rows, hashes);
        case 4: return is_signed ? mix_integers<int32_t>(column, rows, hashes) : mix_integers<uint32_t>(column, rows, hashes);
        default: return mix_integers<int64_t>(column, rows, hashes);
    }
}

template <class Offset>
void mix_bytes(const Column& column, int64_t rows, uint64_t* hashes) {
    const Offset* ends = column.ends<Offset>();
    const auto* data = reinterpret_cast<const char*>(column.values);
    mix(column, rows, hashes, [=](int64_t i) {
        return hash_bytes({data + ends[i], static_cast<size_t>(ends[i + 1] - ends[i])});
    });
}

// A dictionary's values are hashed once each where that is less work than hashing every row.
void mix_dictionary(const Column& column, int64_t rows, uint64_t* hashes) {
    const Column& values = *column.dictionary;
    if (values.length > rows) {
        mix(column, rows, hashes, [&](int64_t i) { return hash_value(values, column.integer(i)); });
        return;
    }
    std::vector<uint64_t> known(static_cast<size_t>(values.length));
    for (int64_t v = 0; v < values.length; v++) known[static_cast<size_t>(v)] = hash_value(values, v);
    mix(column, rows, hashes, [&](int64_t i) { return known[static_cast<size_t>(column.integer(i))]; });
}

}  // namespace

uint64_t hash_value(const Column& column, int64_t i) {
    if (!column.valid(i)) return NULL_HASH;
    return column.dictionary ? hash_value(*column.dictionary, column.integer(i)) : hash_valid(column, i);
}

void hash_column(const Column& column, int64_t rows, uint64_t* hashes) {
    if (column.dictionary) return mix_dictionary(column, rows, hashes);
    switch (column.type->kind) {
        case Kind::Int:
        case Kind::UInt: return mix_integers(column, rows, hashes);
        case Kind::Bytes:
            return column.type->wide ? mix_bytes<int64_t>(column, rows, hashes) : mix_bytes<int32_t>(column, rows, hashes);
        case Kind::Float:
            return mix(column, rows, hashes, [&](int64_t i) { return hash_real(column.real(i)); });
        default:
            for (int64_t i = 0; i < rows; i++) hashes[i] = combine(hashes[i], hash_value(column, i));
    }
}

}  // namespace penstock
