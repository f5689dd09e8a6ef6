// Reading side: types parsed once per schema, columns as cheap views over an imported batch.
//
// A batch is imported without its schema: exporting and parsing the schema of every small batch costs more than the
// work on its rows. A Type tree, made once per schema, stands for it; `run/columns/native_schema.py` matches batches
// with trees.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/columns/arrow_abi.hpp"

namespace penstock {

enum class Kind : uint8_t {
    Null,
    Bool,
    Int,      // signed, also everything temporal; `width` bytes
    UInt,
    Float,    // width 2, 4 or 8
    Decimal,  // two's complement, width 4, 8, 16 or 32
    Fixed,    // opaque bytes, `width` each
    Bytes,    // binary and text; `wide` for 64-bit offsets
    List,     // also maps, whose items are structs
    FixedList,
    Struct,
    Other,  // unions, views, run-end encodings: not read here
};

enum class Meaning : uint8_t { Plain, Text, Date, Timestamp, OtherTemporal };

struct Type {
    Kind kind = Kind::Other;
    Meaning meaning = Meaning::Plain;
    bool wide = false;
    bool nullable = true;
    bool zoned = false;   // timestamps
    bool utc = false;     // timestamps in the zone "UTC"
    bool map = false;     // a List whose items are structs of key and value
    int32_t width = 0;    // bytes per value; of a FixedList: items per value
    int32_t digits = 0;   // decimals
    int32_t scale = 0;    // decimals: digits behind the point
    int64_t per_second = 0;  // timestamps: units in a second
    std::string name;
    std::vector<Type> children;
    std::unique_ptr<Type> dictionary;  // the type of the values that the integers here stand for

    bool readable() const;  // no Other anywhere inside
    bool is_bytes() const { return kind == Kind::Bytes && !dictionary; }
};

Type parse_type(const ArrowSchema& schema);

// A column of a batch. Index i of the column is element offset + i of its buffers.
struct Column {
    const Type* type = nullptr;
    const ArrowArray* array = nullptr;
    int64_t length = 0;
    int64_t offset = 0;
    const uint8_t* validity = nullptr;  // nullptr: no nulls
    const uint8_t* values = nullptr;    // fixed-width values, bits, or bytes of text
    const void* offsets = nullptr;
    std::vector<Column> children;
    std::unique_ptr<Column> dictionary;

    bool has_nulls() const { return validity != nullptr || type->kind == Kind::Null; }

    bool valid(int64_t i) const {
        if (validity == nullptr) return type->kind != Kind::Null;
        const int64_t at = offset + i;
        return (validity[at >> 3] >> (at & 7)) & 1;
    }

    bool bit(int64_t i) const {
        const int64_t at = offset + i;
        return (values[at >> 3] >> (at & 7)) & 1;
    }

    template <class T>
    const T* data() const {
        return reinterpret_cast<const T*>(values) + offset;
    }

    template <class T>
    const T* ends() const {
        return static_cast<const T*>(offsets) + offset;
    }

    int64_t start_of(int64_t i) const { return type->wide ? ends<int64_t>()[i] : ends<int32_t>()[i]; }
    int64_t end_of(int64_t i) const { return start_of(i + 1); }

    std::string_view bytes(int64_t i) const {
        const int64_t start = start_of(i);
        return {reinterpret_cast<const char*>(values) + start, static_cast<size_t>(end_of(i) - start)};
    }

    int64_t integer(int64_t i) const {
        const int64_t at = offset + i;
        const bool is_signed = type->kind != Kind::UInt;
        switch (type->width) {
            case 1: return is_signed ? load<int8_t>(at) : int64_t{load<uint8_t>(at)};
            case 2: return is_signed ? load<int16_t>(at) : int64_t{load<uint16_t>(at)};
            case 4: return is_signed ? load<int32_t>(at) : int64_t{load<uint32_t>(at)};
            default: return load<int64_t>(at);
        }
    }

    double real(int64_t i) const;

    template <class T>
    T load(int64_t at) const {
        T value;
        std::memcpy(&value, values + at * static_cast<int64_t>(sizeof(T)), sizeof(T));
        return value;
    }
};

// An imported batch: owns the array and lets go of it at the end.
class Batch {
   public:
    Batch(const Type& root, ArrowArray&& array);
    Batch(const Batch&) = delete;
    Batch& operator=(const Batch&) = delete;
    ~Batch();

    int64_t rows = 0;
    std::vector<Column> columns;

   private:
    ArrowArray array_;
};

}  // namespace penstock
