// Which group a row belongs to: an open-addressing table from keys to dense group numbers, in order of appearance.
//
// A single column of at most eight bytes is kept as a word, a single column of text as bytes in one arena, and several
// columns packed into one byte string. Slots hold half of the hash beside the group, so that different keys are rarely
// compared. Null is a key of its own, NaN equals NaN, and -0.0 comes out as 0.0
// (`test_keys_meet_where_values_are_equal`).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/columns/array_out.hpp"
#include "kernels/columns/column.hpp"

namespace penstock {

class KeyTable {
   public:
    explicit KeyTable(std::vector<const Type*> types);

    static bool supports(const Type& type);

    // The group of every row; new keys get new groups.
    void find(const std::vector<const Column*>& columns, int64_t rows, uint32_t* groups);

    size_t size() const { return count_; }
    void clear();

    // The key columns of some groups.
    std::vector<ArrayOut> columns(const std::vector<uint32_t>& groups) const;

   private:
    enum class Form : uint8_t { None, Word, Bytes, Packed };
    struct Slot {
        uint32_t tag;
        uint32_t group;  // plus one; zero is free
    };

    template <class Equal, class Insert>
    uint32_t group_of(uint64_t hash, Equal equal, Insert insert);
    uint32_t null_group();
    void grow();
    void find_words(const Column& column, int64_t rows, uint32_t* groups);
    void find_bytes(const Column& column, int64_t rows, uint32_t* groups);
    void find_packed(const std::vector<const Column*>& columns, int64_t rows, uint32_t* groups);
    uint32_t bytes_group(uint64_t hash, std::string_view key);
    std::string_view key_bytes(uint32_t group) const;

    Form form_;
    std::vector<const Type*> types_;
    std::vector<Slot> slots_;
    size_t count_ = 0;
    uint32_t null_group_ = UINT32_MAX;
    std::vector<uint64_t> hashes_;  // of every group, for growing
    std::vector<uint64_t> words_;   // Form::Word
    std::vector<uint64_t> ends_;    // Bytes and Packed: where each group's key ends in the arena
    std::vector<char> arena_;
    std::vector<uint64_t> batch_words_;  // scratch
    std::vector<uint64_t> batch_hashes_;
    std::string packed_;  // the batch's keys, Form::Packed
    std::vector<size_t> packed_ends_;
};

}  // namespace penstock
