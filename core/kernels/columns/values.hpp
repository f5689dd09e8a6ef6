// Typed loops over columns and typed output of fixed-width values, shared by keys and accumulators.
#pragma once

#include <cstring>
#include <type_traits>
#include <vector>

#include "kernels/columns/array_out.hpp"
#include "kernels/columns/column.hpp"

namespace penstock {

__extension__ using int128 = __int128;

// Calls body with a function i -> T that reads the column's values, so that the loop inside body is compiled for the
// column's own type.
template <class T, class Body>
void with_reader(const Column& column, Body body) {
    const auto typed = [&]<class Stored>(std::type_identity<Stored>) {
        const Stored* data = column.data<Stored>();
        body([data](int64_t i) { return static_cast<T>(data[i]); });
    };
    const Type& type = *column.type;
    if constexpr (std::is_same_v<T, int128>) {
        body([&column](int64_t i) { return column.load<int128>(column.offset + i); });
    } else {
        if (type.kind == Kind::Float) {
            type.width == 8 ? typed(std::type_identity<double>{}) : typed(std::type_identity<float>{});
        } else if (type.kind == Kind::Bool) {
            body([&column](int64_t i) { return static_cast<T>(column.bit(i)); });
        } else if (type.kind == Kind::UInt) {
            switch (type.width) {
                case 1: return typed(std::type_identity<uint8_t>{});
                case 2: return typed(std::type_identity<uint16_t>{});
                case 4: return typed(std::type_identity<uint32_t>{});
                default: return typed(std::type_identity<uint64_t>{});
            }
        } else {
            switch (type.width) {
                case 1: return typed(std::type_identity<int8_t>{});
                case 2: return typed(std::type_identity<int16_t>{});
                case 4: return typed(std::type_identity<int32_t>{});
                default: return typed(std::type_identity<int64_t>{});
            }
        }
    }
}

// An output column of fixed width, filled by position.
class FixedOut {
   public:
    FixedOut(Kind kind, int32_t width, size_t count)
        : kind_(kind), width_(kind == Kind::Bool ? 1 : width), valid_(count), bytes_(count * static_cast<size_t>(width_) + 16) {}

    template <class T>
    void put(size_t i, T value, bool valid) {
        valid_[i] = valid;
        uint8_t* at = bytes_.data() + i * static_cast<size_t>(width_);
        if constexpr (std::is_same_v<T, double>) {
            if (width_ == 4) {
                const auto narrow = static_cast<float>(value);
                std::memcpy(at, &narrow, 4);
                return;
            }
        }
        std::memcpy(at, &value, sizeof(T) < static_cast<size_t>(width_) ? sizeof(T) : static_cast<size_t>(width_));
    }

    ArrayOut done() {
        ArrayOut out;
        const auto count = static_cast<int64_t>(valid_.size());
        out.length = count;
        out.buffers.push_back(pack_validity(valid_.data(), count, out.null_count));
        if (kind_ == Kind::Bool) {
            Buffer bits(bit_bytes(count));
            for (int64_t i = 0; i < count; i++) set_bit(bits.data(), i, bytes_.data()[i] != 0);
            bytes_ = std::move(bits);
        }
        out.buffers.push_back(std::move(bytes_));
        return out;
    }

   private:
    Kind kind_;
    int32_t width_;
    std::vector<uint8_t> valid_;
    Buffer bytes_;
};

// An output column of text or bytes, filled in order. Throws std::overflow_error beyond what 32-bit offsets can say.
class BytesOut {
   public:
    BytesOut(const Type& type, size_t count) : type_(type), valid_(count) { ends_.reserve(count + 1), ends_.push_back(0); }

    void put(size_t i, std::string_view value, bool valid);
    ArrayOut done();

   private:
    const Type& type_;
    std::vector<uint8_t> valid_;
    std::vector<int64_t> ends_;
    Buffer bytes_;
};

}  // namespace penstock
