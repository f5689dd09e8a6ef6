#include "kernels/keyed/group_numbers.hpp"

#include <bit>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "kernels/columns/hash.hpp"
#include "kernels/columns/values.hpp"

namespace penstock {

namespace {

constexpr size_t SLOTS_MIN = 64;
constexpr int64_t PREFETCH_ROWS = 12;

bool is_word(const Type& type) {
    switch (type.kind) {
        case Kind::Bool:
        case Kind::Int:
        case Kind::UInt: return true;
        case Kind::Float: return type.width >= 4;
        default: return false;
    }
}

uint64_t real_word(double value) {
    return std::isnan(value) ? 0x7FF8000000000000 : std::bit_cast<uint64_t>(value + 0.0);
}

// The column's values as words; the word under a null may be anything.
void read_words(const Column& column, int64_t rows, uint64_t* words) {
    if (column.type->kind == Kind::Float) {
        with_reader<double>(column, [&](auto read) {
            for (int64_t i = 0; i < rows; i++) words[i] = real_word(read(i));
        });
    } else {
        with_reader<uint64_t>(column, [&](auto read) {
            for (int64_t i = 0; i < rows; i++) words[i] = read(i);
        });
    }
}

uint64_t word_of(const Column& column, int64_t i) {
    if (column.type->kind == Kind::Float) return real_word(column.real(i));
    return column.type->kind == Kind::Bool ? column.bit(i) : static_cast<uint64_t>(column.integer(i));
}

template <class T>
void append(std::string& to, T value) {
    to.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

// One value of a packed key: a byte that says whether it is there, then a word, or fixed bytes, or a length and bytes.
void pack(const Column& column, int64_t i, std::string& to) {
    const bool valid = column.valid(i);
    to.push_back(static_cast<char>(valid));
    if (!valid) return;
    if (is_word(*column.type)) {
        append(to, word_of(column, i));
    } else if (column.type->kind == Kind::Bytes) {
        const std::string_view bytes = column.bytes(i);
        append(to, uint64_t{bytes.size()});
        to.append(bytes);
    } else {
        const int64_t width = column.type->width;
        to.append(reinterpret_cast<const char*>(column.values) + (column.offset + i) * width, static_cast<size_t>(width));
    }
}

void put_word(FixedOut& out, const Type& type, size_t i, uint64_t word, bool valid) {
    if (type.kind == Kind::Float) {
        out.put(i, std::bit_cast<double>(word), valid);
    } else {
        out.put(i, word, valid);
    }
}

// Reads one column out of the packed keys and moves each cursor behind it.
ArrayOut unpack(const Type& type, std::vector<std::string_view>& keys) {
    const bool word = is_word(type);
    FixedOut words(type.kind, type.width, word ? keys.size() : 0);
    BytesOut bytes(type, word ? 0 : keys.size());
    for (size_t i = 0; i < keys.size(); i++) {
        std::string_view& key = keys[i];
        const bool valid = key[0] != 0;
        key.remove_prefix(1);
        if (word) {
            put_word(words, type, i, valid ? read64(key.data()) : 0, valid);
            key.remove_prefix(valid ? 8 : 0);
            continue;
        }
        size_t size = static_cast<size_t>(type.width);
        if (type.kind == Kind::Bytes && valid) {
            size = read64(key.data());
            key.remove_prefix(8);
        }
        bytes.put(i, valid ? key.substr(0, size) : std::string_view(), valid);
        key.remove_prefix(valid ? size : 0);
    }
    return word ? words.done() : bytes.done();
}

}  // namespace

bool KeyTable::supports(const Type& type) {
    if (type.dictionary) return false;
    return is_word(type) || type.kind == Kind::Bytes || type.kind == Kind::Fixed || type.kind == Kind::Decimal;
}

KeyTable::KeyTable(std::vector<const Type*> types) : types_(std::move(types)) {
    if (types_.empty()) {
        form_ = Form::None;
    } else if (types_.size() > 1) {
        form_ = Form::Packed;
    } else if (is_word(*types_[0])) {
        form_ = Form::Word;
    } else {
        form_ = types_[0]->kind == Kind::Bytes ? Form::Bytes : Form::Packed;
    }
    clear();
}

void KeyTable::clear() {
    slots_.assign(SLOTS_MIN, Slot{0, 0});
    count_ = 0;
    null_group_ = UINT32_MAX;
    hashes_.clear();
    words_.clear();
    ends_.clear();
    arena_.clear();
}

void KeyTable::grow() {
    std::vector<Slot> larger(slots_.size() * 2, Slot{0, 0});
    const size_t mask = larger.size() - 1;
    for (const Slot& slot : slots_) {
        if (slot.group == 0) continue;
        size_t at = hashes_[slot.group - 1] & mask;
        while (larger[at].group != 0) at = (at + 1) & mask;
        larger[at] = slot;
    }
    slots_ = std::move(larger);
}

template <class Equal, class Insert>
uint32_t KeyTable::group_of(uint64_t hash, Equal equal, Insert insert) {
    const size_t mask = slots_.size() - 1;
    const auto tag = static_cast<uint32_t>(hash >> 32);
    size_t at = hash & mask;
    for (; slots_[at].group != 0; at = (at + 1) & mask)
        if (slots_[at].tag == tag && equal(slots_[at].group - 1)) return slots_[at].group - 1;
    if (count_ >= std::numeric_limits<uint32_t>::max() - 1) throw std::overflow_error("more than 4 billion keys in one task");
    insert();
    hashes_.push_back(hash);
    count_++;
    slots_[at] = Slot{tag, static_cast<uint32_t>(count_)};
    const auto group = static_cast<uint32_t>(count_ - 1);
    if (count_ * 2 > slots_.size()) grow();
    return group;
}

// The null key has a group, but no slot.
uint32_t KeyTable::null_group() {
    if (null_group_ == UINT32_MAX) {
        null_group_ = static_cast<uint32_t>(count_++);
        hashes_.push_back(NULL_HASH);
        if (form_ == Form::Word) words_.push_back(0);
        if (form_ == Form::Bytes) ends_.push_back(arena_.size());
    }
    return null_group_;
}

void KeyTable::find(const std::vector<const Column*>& columns, int64_t rows, uint32_t* groups) {
    switch (form_) {
        case Form::Word: return find_words(*columns[0], rows, groups);
        case Form::Bytes: return find_bytes(*columns[0], rows, groups);
        case Form::Packed: return find_packed(columns, rows, groups);
        case Form::None:
            for (int64_t i = 0; i < rows; i++) groups[i] = 0;
            if (rows > 0) count_ = 1;
    }
}

void KeyTable::find_words(const Column& column, int64_t rows, uint32_t* groups) {
    batch_words_.resize(static_cast<size_t>(rows));
    batch_hashes_.resize(static_cast<size_t>(rows));
    read_words(column, rows, batch_words_.data());
    for (size_t i = 0; i < batch_words_.size(); i++) batch_hashes_[i] = hash_word(batch_words_[i]);
    for (int64_t i = 0; i < rows; i++) {
        const auto at = static_cast<size_t>(i);
        if (i + PREFETCH_ROWS < rows)
            __builtin_prefetch(&slots_[batch_hashes_[at + PREFETCH_ROWS] & (slots_.size() - 1)]);
        if (column.validity != nullptr && !column.valid(i)) {
            groups[i] = null_group();
            continue;
        }
        const uint64_t word = batch_words_[at];
        groups[i] = group_of(
            batch_hashes_[at], [&](uint32_t group) { return words_[group] == word; }, [&] { words_.push_back(word); });
    }
}

std::string_view KeyTable::key_bytes(uint32_t group) const {
    const uint64_t start = group == 0 ? 0 : ends_[group - 1];
    return {arena_.data() + start, ends_[group] - start};
}

uint32_t KeyTable::bytes_group(uint64_t hash, std::string_view key) {
    return group_of(
        hash,
        [&](uint32_t group) {
            const std::string_view known = key_bytes(group);
            return known.size() == key.size() && equal_bytes(known.data(), key.data(), key.size());
        },
        [&] {
            arena_.insert(arena_.end(), key.begin(), key.end());
            ends_.push_back(arena_.size());
        });
}

void KeyTable::find_bytes(const Column& column, int64_t rows, uint32_t* groups) {
    batch_hashes_.resize(static_cast<size_t>(rows));
    for (int64_t i = 0; i < rows; i++)
        batch_hashes_[static_cast<size_t>(i)] = column.valid(i) ? hash_bytes(column.bytes(i)) : 0;
    for (int64_t i = 0; i < rows; i++) {
        const auto at = static_cast<size_t>(i);
        if (i + PREFETCH_ROWS < rows)
            __builtin_prefetch(&slots_[batch_hashes_[at + PREFETCH_ROWS] & (slots_.size() - 1)]);
        groups[i] = column.valid(i) ? bytes_group(batch_hashes_[at], column.bytes(i)) : null_group();
    }
}

void KeyTable::find_packed(const std::vector<const Column*>& columns, int64_t rows, uint32_t* groups) {
    // Pack all keys of the batch first, so that their slots are prefetched when they are looked at.
    packed_.clear();
    packed_ends_.resize(static_cast<size_t>(rows));
    batch_hashes_.resize(static_cast<size_t>(rows));
    const auto key_at = [&](size_t i) {
        const size_t start = i == 0 ? 0 : packed_ends_[i - 1];
        return std::string_view(packed_.data() + start, packed_ends_[i] - start);
    };
    for (size_t i = 0; i < packed_ends_.size(); i++) {
        for (const Column* column : columns) pack(*column, static_cast<int64_t>(i), packed_);
        packed_ends_[i] = packed_.size();
    }
    for (size_t i = 0; i < packed_ends_.size(); i++) batch_hashes_[i] = hash_bytes(key_at(i));
    for (size_t i = 0; i < packed_ends_.size(); i++) {
        if (i + PREFETCH_ROWS < packed_ends_.size())
            __builtin_prefetch(&slots_[batch_hashes_[i + PREFETCH_ROWS] & (slots_.size() - 1)]);
        groups[i] = bytes_group(batch_hashes_[i], key_at(i));
    }
}

std::vector<ArrayOut> KeyTable::columns(const std::vector<uint32_t>& groups) const {
    std::vector<ArrayOut> out;
    if (form_ == Form::Word) {
        FixedOut words(types_[0]->kind, types_[0]->width, groups.size());
        for (size_t i = 0; i < groups.size(); i++)
            put_word(words, *types_[0], i, words_[groups[i]], groups[i] != null_group_);
        out.push_back(words.done());
    } else if (form_ == Form::Bytes) {
        BytesOut bytes(*types_[0], groups.size());
        for (size_t i = 0; i < groups.size(); i++) bytes.put(i, key_bytes(groups[i]), groups[i] != null_group_);
        out.push_back(bytes.done());
    } else if (form_ == Form::Packed) {
        std::vector<std::string_view> keys;
        for (const uint32_t group : groups) keys.push_back(key_bytes(group));
        for (const Type* type : types_) out.push_back(unpack(*type, keys));
    }
    return out;
}

}  // namespace penstock
