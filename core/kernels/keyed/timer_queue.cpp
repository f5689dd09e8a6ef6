#include "kernels/keyed/timer_queue.hpp"

#include <algorithm>

namespace penstock {

namespace {

constexpr size_t DEAD_MIN = 1024;  // fewer are not worth a sweep

bool later(const Timer& a, const Timer& b) { return a.later_than(b); }

}  // namespace

void TimerQueue::set(KeyStateObject* state, int64_t at) { put(state, at, order_ + 1); }

void TimerQueue::put(KeyStateObject* state, int64_t at, int64_t order) {
    if (state->timers == nullptr) state->timers = new KeyTimers();
    if (!state->timers->orders[number_].emplace(at, order).second) return;
    order_ = std::max(order_, order);
    heap_.push_back({at, order, nanobind::borrow(as_object(state))});
    std::push_heap(heap_.begin(), heap_.end(), later);
}

void TimerQueue::clear(KeyStateObject* state) {
    if (state->timers == nullptr || state->timers->orders[number_].empty()) return;
    dead_ += state->timers->orders[number_].size();
    state->timers->orders[number_].clear();
    if (dead_ >= DEAD_MIN && dead_ > heap_.size() / 2) sweep();
}

bool TimerQueue::alive(const Timer& timer) const {
    const KeyTimers* timers = as_key_state(timer.state.ptr())->timers;
    const auto found = timers->orders[number_].find(timer.at);
    return found != timers->orders[number_].end() && found->second == timer.order;
}

Timer TimerQueue::take_top() {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    Timer top = std::move(heap_.back());
    heap_.pop_back();
    return top;
}

const Timer* TimerQueue::earliest() {
    while (!heap_.empty()) {
        if (alive(heap_.front())) return &heap_.front();
        const Timer dead = take_top();  // freed when the heap is in order again
        dead_--;
    }
    return nullptr;
}

Timer TimerQueue::pop() {
    Timer top = take_top();
    as_key_state(top.state.ptr())->timers->orders[number_].erase(top.at);
    return top;
}

void TimerQueue::sweep() {
    const auto middle = std::partition(heap_.begin(), heap_.end(), [this](const Timer& timer) { return alive(timer); });
    std::vector<Timer> dead(std::make_move_iterator(middle), std::make_move_iterator(heap_.end()));
    heap_.erase(middle, heap_.end());
    std::make_heap(heap_.begin(), heap_.end(), later);
    dead_ = 0;
}  // dead timers are freed here, when the heap is in order again

std::vector<Timer> TimerQueue::sorted() const {
    std::vector<Timer> found;
    std::copy_if(heap_.begin(), heap_.end(), std::back_inserter(found), [this](const Timer& timer) { return alive(timer); });
    std::sort(found.begin(), found.end(), [](const Timer& a, const Timer& b) { return b.later_than(a); });
    return found;
}

}  // namespace penstock
