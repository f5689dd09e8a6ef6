// Random numbers that are the same on every machine: splitmix64 to spread seeds, xoshiro256** to draw.
//
// A seed must give the same plan on every machine. The standard library's engines are portable, but its distributions
// are not. `split` gives every chain, thread and round its own stream from one seed.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace penstock {

inline std::uint64_t spread(std::uint64_t value) {
    value += 0x9e3779b97f4a7c15ULL;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
    return value ^ (value >> 31);
}

class Random {
  public:
    explicit Random(std::uint64_t seed) {
        for (auto &word : words_) {
            seed = spread(seed);
            word = seed;
        }
    }

    // A stream for part `index` of the work, independent of how much has been drawn from any other.
    static Random split(std::uint64_t seed, std::uint64_t index) {
        return Random(spread(seed) ^ spread(~index));
    }

    std::uint64_t next() {
        const std::uint64_t result = turn(words_[1] * 5, 7) * 9;
        const std::uint64_t shifted = words_[1] << 17;
        words_[2] ^= words_[0];
        words_[3] ^= words_[1];
        words_[1] ^= words_[2];
        words_[0] ^= words_[3];
        words_[2] ^= shifted;
        words_[3] = turn(words_[3], 45);
        return result;
    }

    // Uniform in [0, bound); the bias of at most bound / 2^32 does not matter to a search.
    std::uint32_t below(std::uint32_t bound) { return scale(static_cast<std::uint32_t>(next() >> 32), bound); }

    static std::uint32_t scale(std::uint32_t word, std::uint32_t bound) {
        return static_cast<std::uint32_t>((static_cast<std::uint64_t>(word) * bound) >> 32);
    }

    template <class List> void shuffle(List &list) {
        for (std::size_t i = list.size(); i > 1; --i) {
            std::swap(list[i - 1], list[below(static_cast<std::uint32_t>(i))]);
        }
    }

  private:
    static std::uint64_t turn(std::uint64_t value, int bits) { return (value << bits) | (value >> (64 - bits)); }
    std::array<std::uint64_t, 4> words_{};
};

// -log of evenly spaced uniforms. Metropolis accepts a change when u < exp(-change / T), that is when
// change < T * -log(u); a table look-up by random bits replaces a logarithm for each proposal.
class NegativeLogs {
  public:
    static constexpr std::uint32_t bits = 12;
    NegativeLogs() {
        for (std::size_t i = 0; i < table_.size(); ++i) {
            table_[i] = static_cast<float>(-std::log((static_cast<double>(i) + 0.5) / table_.size()));
        }
    }
    float operator[](std::uint64_t random_bits) const { return table_[random_bits & (table_.size() - 1)]; }

  private:
    std::array<float, (1u << bits)> table_{};
};

}  // namespace penstock
