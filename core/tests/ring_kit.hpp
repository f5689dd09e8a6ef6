// Shared by the ring's test programs: messages that show whether they are whole, and a reader that checks them.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <string>

#include "ring/ring.hpp"

namespace penstock::ring {

[[noreturn]] inline void wrong(const std::string& what) {
    std::fprintf(stderr, "WRONG: %s\n", what.c_str());
    std::fflush(stderr);
    std::_Exit(9);
}

inline void expect(bool holds, const std::string& what) {
    if (!holds) wrong(what);
}

// Message `number` of producer `identity`: its length and each of its bytes follow from the two.
inline uint32_t length_of(uint32_t identity, uint64_t number, uint32_t longest) {
    return 16 + static_cast<uint32_t>((number * 2654435761u + identity * 40503u) % (longest - 16));
}

inline void fill_message(std::byte* at, uint32_t length, uint32_t identity, uint64_t number) {
    const uint64_t head[2] = {identity, number};
    std::memcpy(at, head, 16);
    std::memset(at + 16, static_cast<int>((identity * 31 + number) & 0xFF), length - 16);
}

// Takes records and fails on a record that is torn, out of order, lost or there twice.
class Checker {
   public:
    explicit Checker(uint32_t longest) : longest_(longest) {}

    void take(const Record& record) {
        if ((record.flags & END) != 0) return;
        uint64_t head[2] = {0, 0};
        expect(record.length >= 16, "a record of " + std::to_string(record.length) + " bytes");
        std::memcpy(head, record.data, 16);
        const uint32_t identity = record.producer;
        expect(head[0] == identity, "a record of another producer");
        uint64_t& due = next_[identity];
        expect(head[1] == due, "producer " + std::to_string(identity) + " sent " + std::to_string(head[1]) + ", due was " +
                                   std::to_string(due));
        expect(record.length == length_of(identity, due, longest_), "a record of the wrong length");
        const auto fill = static_cast<std::byte>((identity * 31 + due) & 0xFF);
        for (uint64_t i = 16; i < record.length; i++)
            if (record.data[i] != fill) wrong("a torn record: byte " + std::to_string(i));
        due++;
    }
    uint64_t taken_from(uint32_t identity) { return next_[identity]; }

   private:
    uint32_t longest_;
    std::map<uint32_t, uint64_t> next_;
};

void run_threads(int seconds, uint64_t seed);
void run_fuzz(uint64_t rounds, uint64_t seed);

}  // namespace penstock::ring
