// Stable hashes of values and rows. They decide which task holds a key's state, so they are equal in every process and
// run (`test_hashes_never_change`, `test_hashes_are_equal_in_another_process`).
//
// The mixing step multiplies 64 by 64 bits and folds the halves together (the idea behind the wyhash family; constants
// are square roots of small primes). Integers of every width hash by value, so do floats; -0.0 is 0.0, all NaNs are one,
// and a dictionary column hashes like its values. The hash has no secret: a user who chooses keys can aim them at one
// task.
//
// Routing takes the hash's upper bits, which all keys of one task share; hash tables take the lower ones.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "kernels/columns/column.hpp"

namespace penstock {

static_assert(std::endian::native == std::endian::little, "values are read in Arrow's little-endian order");

inline constexpr uint64_t K0 = 0x9E3779B97F4A7C15, K1 = 0xBB67AE8584CAA73B, K2 = 0x3C6EF372FE94F82B,
                          K3 = 0xA54FF53A5F1D36F1;
inline constexpr uint64_t NULL_HASH = 0x510E527FADE682D1;
inline constexpr uint64_t ROW_SEED = K3;

inline uint64_t fold(uint64_t a, uint64_t b) {
    __extension__ using uint128 = unsigned __int128;
    const uint128 product = static_cast<uint128>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

inline uint64_t hash_word(uint64_t value) { return fold(value ^ K0, K1); }
inline uint64_t combine(uint64_t state, uint64_t value) { return fold(state ^ value, K2); }

inline uint64_t read64(const char* at) {
    uint64_t value;
    std::memcpy(&value, at, 8);
    return value;
}

inline uint64_t read32(const char* at) {
    uint32_t value;
    std::memcpy(&value, at, 4);
    return value;
}

inline uint64_t hash_bytes(std::string_view text) {
    const char* at = text.data();
    const size_t size = text.size();
    uint64_t state = K3 ^ size;
    uint64_t a = 0;
    uint64_t b = 0;
    if (size >= 8) {
        if (size > 16) {
            for (size_t i = 0; i < size - 16; i += 16) state = fold(read64(at + i) ^ K1, read64(at + i + 8) ^ state);
            a = read64(at + size - 16);
        } else {
            a = read64(at);
        }
        b = read64(at + size - 8);
    } else if (size >= 4) {
        a = read32(at);
        b = read32(at + size - 4) >> (8 * (8 - size));
    } else if (size > 0) {
        const auto byte = [at](size_t i) { return uint64_t{static_cast<uint8_t>(at[i])} << (8 * i); };
        a = byte(0) | byte(size >> 1) | byte(size - 1);
    }
    return fold(a ^ K0, b ^ state) ^ fold(state ^ K1, b ^ K2);
}

// Equality without a call of memcmp for short keys, which most are.
inline bool equal_bytes(const char* a, const char* b, size_t size) {
    if (size >= 8) {
        for (size_t i = 0; i + 8 < size; i += 8)
            if (read64(a + i) != read64(b + i)) return false;
        return read64(a + size - 8) == read64(b + size - 8);
    }
    if (size >= 4) return read32(a) == read32(b) && read32(a + size - 4) == read32(b + size - 4);
    for (size_t i = 0; i < size; i++)
        if (a[i] != b[i]) return false;
    return true;
}

inline uint64_t hash_real(double value) {
    if (std::isnan(value)) return hash_word(0x7FF8000000000000);
    return hash_word(std::bit_cast<uint64_t>(value + 0.0));
}

// The hash of one value of a readable column.
uint64_t hash_value(const Column& column, int64_t i);

// Mixes a column into the hashes of `rows` rows, which start as ROW_SEED.
void hash_column(const Column& column, int64_t rows, uint64_t* hashes);

}  // namespace penstock
