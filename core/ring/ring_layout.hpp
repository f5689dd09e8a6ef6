// How a ring lies in shared memory: header, table of producers, heads in slots of their own, payload area.
//
//     page 0        Header     constants, then the words that change, each on a cache line of its own
//     page 1-4      Entry[]    one for each registered producer process
//     then          Slot[]     one head for each record, in the order of reservation
//     then          bytes      payload, in units of 64 bytes
//
// The paper (003, section IV) puts each head before its payload. Here heads have slots of their own, so no payload byte
// can be taken for a head. A head's first word holds status, owner, length and ticket together: the compare-and-swap
// that reserves also names the owner and the length. So a producer that dies at the next instruction leaves a record
// that the consumer can step over. Every index that is read from here is bounded before use
// (`test_mutated_segments_end_in_typed_errors`).
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

namespace penstock::ring {

inline constexpr uint64_t MAGIC = 0x31676E6972736E70;  // "pnsring1"
inline constexpr uint32_t VERSION = 2;
inline constexpr uint32_t UNIT = 64;                      // bytes; payload begins on a cache line
inline constexpr uint32_t CAPACITY_UNITS_MAX = 1u << 19;  // 32 MB: a length in units has 20 bits
inline constexpr uint32_t CAPACITY_UNITS_MIN = 1u << 6;   // 4 KB
inline constexpr uint32_t SLOTS_MAX = 1u << 16;
inline constexpr uint32_t SLOTS_MIN = 1u << 3;
inline constexpr uint32_t PRODUCERS_MAX = 255;

// The paper's five states. A slot that holds hasRead under a ticket of the next lap is blank: that lap may take it.
enum class Status : uint32_t { has_read = 0, is_writing = 1, is_ready = 2, flush = 3, other = 4 };

// status 4 bits | producer 8 | length in units 20 | ticket 32
struct Word {
    Status status;
    uint32_t producer;
    uint32_t units;
    uint32_t ticket;

    uint64_t pack() const {
        return uint64_t{static_cast<uint32_t>(status)} << 60 | uint64_t{producer} << 52 | uint64_t{units} << 32 | ticket;
    }
    static Word unpack(uint64_t word) {
        return {static_cast<Status>(word >> 60), static_cast<uint32_t>(word >> 52) & 0xFF,
                static_cast<uint32_t>(word >> 32) & 0xFFFFF, static_cast<uint32_t>(word)};
    }
    static uint64_t blank(uint32_t ticket) { return ticket; }
};

// Where the next reservation goes: ticket 32 bits | position in units 32 bits; both run on and wrap at 2^32.
struct Cursor {
    uint32_t ticket;
    uint32_t position;

    uint64_t pack() const { return uint64_t{ticket} << 32 | position; }
    static Cursor unpack(uint64_t word) { return {static_cast<uint32_t>(word >> 32), static_cast<uint32_t>(word)}; }
};

// MOVED: the producer's last record in this ring; it goes on in its consumer's next one.
inline constexpr uint32_t BATCH = 1, PART = 2, FIRST = 4, LAST = 8, END = 16, CHECKED = 32, MOVED = 64, FLAGS_ALL = 127;

// The rest of the head: written by the owner before its release-store of the word, copied once by the consumer.
struct Head {
    uint32_t target;
    uint32_t length;
    uint64_t sequence;
    uint64_t whole;       // length of the message that this is a part of
    uint32_t generation;  // of the producer's registration
    uint32_t flags;
    uint64_t checksum;  // of the payload where flags say CHECKED
    uint64_t seal;      // of all of the above with word and epoch
};

struct alignas(64) Slot {
    std::atomic<uint64_t> word;
    Head head;
};

enum class Standing : uint32_t { blank = 0, claimed = 1, live = 2, ended = 3, revoked = 4 };

// standing 4 bits | generation 28 | process 32
struct Holder {
    Standing standing;
    uint32_t generation;
    uint32_t process;

    uint64_t pack() const {
        return uint64_t{static_cast<uint32_t>(standing)} << 60 | uint64_t{generation & 0xFFFFFFF} << 32 | process;
    }
    static Holder unpack(uint64_t word) {
        return {static_cast<Standing>(word >> 60), static_cast<uint32_t>(word >> 32) & 0xFFFFFFF,
                static_cast<uint32_t>(word)};
    }
};

struct alignas(64) Entry {
    std::atomic<uint64_t> holder;
    std::atomic<uint64_t> started;      // the process' start time, so that a reused number is not taken for it
    std::atomic<uint32_t> identity;     // the number that its records carry
    std::atomic<uint32_t> wants_space;  // 1: write its eventfd when space comes free
};

enum Parked : uint32_t { AWAKE = 0, ON_FUTEX = 1, ON_EVENTFD = 2 };

struct Header {
    std::atomic<uint64_t> magic;  // written last by the creator
    uint32_t version;
    uint32_t layout;  // sizes of the structures here, so that another build is refused
    uint64_t bytes;
    uint64_t epoch;
    uint32_t capacity_units;
    uint32_t slots;
    uint32_t producers;
    uint32_t unused;
    uint64_t process_namespace;  // process numbers mean nothing in another namespace

    alignas(64) std::atomic<uint64_t> consumer_started;
    std::atomic<uint32_t> consumer;  // its process
    std::atomic<uint32_t> closed;    // the consumer has left in good order

    alignas(64) std::atomic<uint64_t> cursor;        // either end moves it on where it is behind
    alignas(64) std::atomic<uint64_t> released;      // a Cursor too, the consumer's: all before it is free again
    alignas(64) std::atomic<uint32_t> parked;        // the consumer's futex
    alignas(64) std::atomic<uint32_t> space_wanted;  // some producer waits for space
    std::atomic<uint32_t> space_turn;                // the producers' futex
};

inline constexpr uint64_t ENTRIES_AT = 4096;
inline constexpr uint64_t SLOTS_AT = ENTRIES_AT + 4 * 4096;
inline constexpr uint32_t LAYOUT = sizeof(Header) << 20 | sizeof(Slot) << 10 | sizeof(Entry);

static_assert(sizeof(Slot) == 64 && sizeof(Entry) == 64 && sizeof(Header) <= ENTRIES_AT);
static_assert((PRODUCERS_MAX + 1) * sizeof(Entry) <= SLOTS_AT - ENTRIES_AT);
static_assert(std::is_trivially_copyable_v<Head> && std::atomic<uint64_t>::is_always_lock_free &&
              std::atomic<uint32_t>::is_always_lock_free);

inline uint64_t payload_at(uint32_t slots) { return (SLOTS_AT + uint64_t{slots} * sizeof(Slot) + 4095) / 4096 * 4096; }
inline uint64_t segment_bytes(uint32_t slots, uint32_t units) { return payload_at(slots) + uint64_t{units} * UNIT; }

}  // namespace penstock::ring
