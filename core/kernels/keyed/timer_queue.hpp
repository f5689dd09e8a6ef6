// Timers by time, then in the order of setting; one for each key and time.
//
// A heap in which a cleared timer stays as a dead entry. Rejected: removing it, which needs its place in the heap and
// moves other entries at every clear. Dead entries are swept out when they are the greater part, so memory is about
// twice that of the live timers at most (`test_cleared_timers_cost_no_memory_and_are_not_saved`).
#pragma once

#include <vector>

#include "kernels/keyed/key_state.hpp"

namespace penstock {

struct Timer {
    int64_t at = 0;
    int64_t order = 0;
    nanobind::object state;  // of its key

    bool later_than(const Timer& other) const { return at != other.at ? at > other.at : order > other.order; }
};

class TimerQueue {
   public:
    explicit TimerQueue(int number) : number_(number) {}

    void set(KeyStateObject* state, int64_t at);  // nothing where it is set already
    void put(KeyStateObject* state, int64_t at, int64_t order);  // as it was set before
    void clear(KeyStateObject* state);
    const Timer* earliest();  // nullptr where there is none
    Timer pop();              // there must be one
    std::vector<Timer> sorted() const;
    int64_t order() const { return order_; }  // of the last one that was set
    size_t entries() const { return heap_.size(); }

   private:
    bool alive(const Timer& timer) const;
    Timer take_top();
    void sweep();

    int number_;
    int64_t order_ = 0;
    size_t dead_ = 0;
    std::vector<Timer> heap_;
};

}  // namespace penstock
