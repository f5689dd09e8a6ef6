// Separators of one byte are found eight bytes at a time: subtracting one from each byte of x XOR the pattern borrows
// where a byte is zero. (A call of memchr for each short word costs more than the word.)
#include "kernels/columns/split_words.hpp"

#include <bit>
#include <limits>
#include <stdexcept>

#include "kernels/columns/hash.hpp"
#include "kernels/columns/take.hpp"

namespace penstock {

namespace {

constexpr uint64_t ONES = 0x0101010101010101;
constexpr uint64_t LOWS = 0x7F7F7F7F7F7F7F7F;

// The high bit of every byte of `word` that is zero, exactly.
inline uint64_t zero_bytes(uint64_t word) { return ~(((word & LOWS) + LOWS) | word | LOWS); }

template <class Offset>
class Splitter {
   public:
    Splitter(const Column& column, std::string_view separator, bool want_rows)
        : column_(column), separator_(separator), want_rows_(want_rows), ends_(column.ends<Offset>()) {
        const auto rows = column.length;
        text_start_ = rows == 0 ? 0 : ends_[0];
        text_end_ = rows == 0 ? 0 : ends_[rows];
        bytes_.reserve(static_cast<size_t>(text_end_ - text_start_) + 16);
        offsets_.reserve(sizeof(Offset) * (static_cast<size_t>(text_end_ - text_start_) / 4 + 64));
        offsets_.as<Offset>()[0] = 0;
    }

    Words run() {
        for (int64_t row = 0; row < column_.length; row++) {
            if (!column_.valid(row)) continue;
            separator_.size() == 1 ? split_by_byte(ends_[row], ends_[row + 1]) : split_by_text(ends_[row], ends_[row + 1]);
            if (want_rows_) rows_.resize(static_cast<size_t>(count_), static_cast<uint32_t>(row));
        }
        Words words;
        words.pieces.length = count_;
        words.pieces.buffers.emplace_back();
        words.pieces.buffers.push_back(std::move(offsets_));
        words.pieces.buffers.push_back(std::move(bytes_));
        words.rows = std::move(rows_);
        return words;
    }

   private:
    void split_by_byte(int64_t at, int64_t end) {
        const char* text = reinterpret_cast<const char*>(column_.values);
        const uint64_t pattern = ONES * static_cast<uint8_t>(separator_[0]);
        int64_t start = at;
        for (; at + 8 <= end; at += 8) {
            for (uint64_t found = zero_bytes(read64(text + at) ^ pattern); found != 0; found &= found - 1) {
                const int64_t stop = at + std::countr_zero(found) / 8;
                add(start, stop);
                start = stop + 1;
            }
        }
        for (; at < end; at++) {
            if (text[at] != separator_[0]) continue;
            add(start, at);
            start = at + 1;
        }
        add(start, end);
    }

    void split_by_text(int64_t start, int64_t end) {
        if (end == start) return;
        const std::string_view text(reinterpret_cast<const char*>(column_.values) + start, static_cast<size_t>(end - start));
        size_t from = 0;
        for (size_t at = text.find(separator_); at != text.npos; at = text.find(separator_, from)) {
            add(start + static_cast<int64_t>(from), start + static_cast<int64_t>(at));
            from = at + separator_.size();
        }
        add(start + static_cast<int64_t>(from), end);
    }

    void add(int64_t start, int64_t end) {
        if (start == end) return;
        copy_short(bytes_.data() + size_, column_.values + start, static_cast<size_t>(end - start), start + 16 <= text_end_);
        size_ += end - start;
        if ((static_cast<size_t>(count_) + 2) * sizeof(Offset) > offsets_.capacity())
            offsets_.reserve(2 * offsets_.capacity());
        offsets_.as<Offset>()[++count_] = static_cast<Offset>(size_);  // never more text than came in
    }

    const Column& column_;
    std::string_view separator_;
    bool want_rows_;
    const Offset* ends_;
    int64_t text_start_ = 0;
    int64_t text_end_ = 0;
    int64_t size_ = 0;
    int64_t count_ = 0;
    Buffer offsets_;
    Buffer bytes_;
    std::vector<uint32_t> rows_;
};

}  // namespace

Words split_column(const Column& column, std::string_view separator, bool want_rows) {
    if (column.type->wide) return Splitter<int64_t>(column, separator, want_rows).run();
    return Splitter<int32_t>(column, separator, want_rows).run();
}

}  // namespace penstock
