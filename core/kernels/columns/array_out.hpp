// Writing side: arrays built here and handed out over the C Data Interface, which then owns their buffers.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "kernels/columns/arrow_abi.hpp"

namespace penstock {

// Bytes that grow. Rejected: std::vector, which writes zeros that are overwritten at once.
class Buffer {
   public:
    Buffer() = default;
    explicit Buffer(size_t bytes) { reserve(bytes == 0 ? 1 : bytes); }  // never without an address
    Buffer(Buffer&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), capacity_(std::exchange(other.capacity_, 0)) {}
    Buffer& operator=(Buffer&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(capacity_, other.capacity_);
        return *this;
    }
    ~Buffer() { std::free(data_); }

    void reserve(size_t bytes) {
        if (bytes <= capacity_) return;
        const size_t wanted = bytes < 2 * capacity_ ? 2 * capacity_ : (bytes < 64 ? 64 : bytes);
        void* grown = std::realloc(data_, wanted);
        if (grown == nullptr) throw std::bad_alloc();
        data_ = static_cast<uint8_t*>(grown);
        capacity_ = wanted;
    }

    uint8_t* data() { return data_; }
    const uint8_t* data() const { return data_; }
    size_t capacity() const { return capacity_; }
    template <class T>
    T* as() {
        return reinterpret_cast<T*>(data_);
    }

   private:
    uint8_t* data_ = nullptr;
    size_t capacity_ = 0;
};

// One array: validity first (empty where nothing is null), then what its type asks for.
struct ArrayOut {
    int64_t length = 0;
    int64_t null_count = 0;
    std::vector<Buffer> buffers;
    std::vector<ArrayOut> children;
    const ArrowArray* shared = nullptr;             // all of it belongs to another owner, which `keep` holds
    const ArrowArray* shared_dictionary = nullptr;  // likewise
    std::shared_ptr<const void> keep;
};

// Bits in Arrow's order; `bits` may hold more than asked for.
inline void set_bit(uint8_t* bits, int64_t i, bool on) {
    const uint8_t mask = static_cast<uint8_t>(1U << (i & 7));
    bits[i >> 3] = static_cast<uint8_t>(on ? bits[i >> 3] | mask : bits[i >> 3] & ~mask);
}

inline size_t bit_bytes(int64_t count) { return static_cast<size_t>((count + 7) / 8); }

// A validity bitmap from one byte per value; counts the nulls and leaves the buffer empty when there are none.
Buffer pack_validity(const uint8_t* valid, int64_t count, int64_t& null_count);

// Hands the array over; afterwards `out->release` frees it.
void export_array(ArrayOut&& array, ArrowArray* out);

// A batch is exported as a struct of its columns.
void export_batch(int64_t rows, std::vector<ArrayOut>&& columns, ArrowArray* out);

}  // namespace penstock
