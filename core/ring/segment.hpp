// Segment: the memory of one inbox, mapped and checked.
//
// The memory is an anonymous file: private to its user, sealed against shrinking and growing, and gone with the last
// process that holds it, also a killed one (`test_the_memory_is_private_sealed_and_nameless`). It is allocated in full
// before use: a machine without memory is an error here and not a SIGBUS later. Rejected: named segments (shm_open),
// which outlive killed processes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ring/ring_layout.hpp"
#include "ring/waiting.hpp"

namespace penstock::ring {

struct Shape {
    uint64_t capacity = 4 << 20;  // bytes of payload; rounded up to a power of two
    uint32_t slots = 0;           // records that can be under way; 0: one for each 2 KB
    uint32_t producers = 64;
    uint64_t epoch = 1;
};

// A reader's own, read-only mapping of a segment's payload. It can be turned into private memory in place, so that
// what is still referenced keeps its address while the ring has its space back.
class View {
   public:
    explicit View(const class Segment& segment);
    View(const View&) = delete;
    View& operator=(const View&) = delete;
    ~View();

    const std::byte* at(uint32_t position) const { return base_ + uint64_t{position & (units_ - 1)} * UNIT; }

    // Ranges (position, units) that are to stay; false when there is no memory for them, and then nothing has changed.
    bool make_private(const std::vector<std::pair<uint32_t, uint32_t>>& ranges, const class Segment& segment) noexcept;

   private:
    std::byte* base_ = nullptr;
    uint64_t bytes_ = 0;
    uint32_t units_ = 0;
};

class Segment {
   public:
    // A new segment; `wake` is the eventfd of another one to share, or -1.
    static std::shared_ptr<Segment> create(const Shape& shape, int wake = -1);
    // A segment that another process made; both descriptors are duplicated.
    static std::shared_ptr<Segment> attach(int memory, int wake, std::optional<uint64_t> epoch = std::nullopt);

    Segment(const Segment&) = delete;
    Segment& operator=(const Segment&) = delete;
    ~Segment();

    Header& header() const { return *reinterpret_cast<Header*>(base_); }
    Entry& entry(uint32_t number) const { return reinterpret_cast<Entry*>(base_ + ENTRIES_AT)[number]; }
    Slot& slot(uint32_t ticket) const { return slots_at_[ticket & (slots_ - 1)]; }
    std::byte* payload(uint32_t position) const {
        return payload_at_ + uint64_t{position & (capacity_units_ - 1)} * UNIT;
    }

    // Copies of what the header says; the header is not read for them again.
    uint32_t capacity_units() const { return capacity_units_; }
    uint32_t slots() const { return slots_; }
    uint32_t producers() const { return producers_; }
    uint64_t epoch() const { return epoch_; }
    uint64_t capacity() const { return uint64_t{capacity_units_} * UNIT; }
    // A record takes at most a quarter, so that parts of long messages overlap and the wrap wastes little.
    uint32_t part_bytes_max() const { return capacity_units_ / 4 * UNIT; }

    int memory() const { return memory_.number(); }
    int wake() const { return wake_.number(); }

   private:
    Segment(Descriptor memory, Descriptor wake) : memory_(std::move(memory)), wake_(std::move(wake)) {}
    void map(uint64_t bytes);
    void adopt(uint32_t capacity_units, uint32_t slots, uint32_t producers, uint64_t epoch);

    Descriptor memory_;
    Descriptor wake_;
    std::byte* base_ = nullptr;
    uint64_t bytes_ = 0;
    Slot* slots_at_ = nullptr;
    std::byte* payload_at_ = nullptr;
    uint32_t capacity_units_ = 0;
    uint32_t slots_ = 0;
    uint32_t producers_ = 0;
    uint64_t epoch_ = 0;
};

}  // namespace penstock::ring
