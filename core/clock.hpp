// The cap on a search. It never steers one, so that a search which ends before its cap gives the same answer each time.
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
