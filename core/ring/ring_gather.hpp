// Gather: pieces of memory read as one, from front to back, in steps of any size.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace penstock::ring {

struct Piece {
    const std::byte* data;
    uint64_t length;
};

class Gather {
   public:
    void add(const void* data, uint64_t length) {
        if (length == 0) return;
        pieces_.push_back({static_cast<const std::byte*>(data), length});
        length_ += length;
    }
    uint64_t length() const { return length_; }

    // Copies the next `count` bytes; at least that many must be left.
    void copy(std::byte* to, uint64_t count) {
        while (count != 0) {
            Piece& piece = pieces_[at_];
            const uint64_t now = std::min(count, piece.length);
            std::memcpy(to, piece.data, now);
            to += now;
            count -= now;
            piece.data += now;
            piece.length -= now;
            if (piece.length == 0) at_++;
        }
    }

   private:
    std::vector<Piece> pieces_;
    size_t at_ = 0;
    uint64_t length_ = 0;
};

}  // namespace penstock::ring
