// The time limit of a search. It stops a search and does not steer it, so a search that ends before its limit gives the
// same answer each time (`test_same_seed_same_answer_and_another_seed_another`).
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace penstock {

class Cap {
  public:
    explicit Cap(double seconds)
        : at_(std::chrono::steady_clock::now() +
              std::chrono::nanoseconds(static_cast<std::int64_t>(1e9 * std::clamp(seconds, 0.0, 1e8)))) {}
    bool passed() const { return std::chrono::steady_clock::now() >= at_; }

  private:
    std::chrono::steady_clock::time_point at_;
};

}  // namespace penstock
