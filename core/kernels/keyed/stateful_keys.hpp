// KeyedTable: the keys of a stateful operator, their state, and the row loop that hands them to the user's functions.
//
// A key is in the table while it has state or timers, so a cleared key costs nothing
// (`test_keys_without_state_are_forgotten`).
#pragma once

#include <optional>
#include <vector>

#include "kernels/columns/exchange.hpp"
#include "kernels/rows/row.hpp"
#include "kernels/keyed/state_bytes.hpp"
#include "kernels/keyed/timer_queue.hpp"

namespace penstock {

enum Clock : int { EVENT = 0, PROCESSING = 1 };

class KeyedTable {
   public:
    // `identity` makes a hashable stand-in of a key; `moment_us(moment, clock)` and `delay_us(delay)` check what users give.
    KeyedTable(nanobind::object make_state, nanobind::object identity, nanobind::object moment_us, nanobind::object delay_us,
               bool utc_moments)
        : make_state_(std::move(make_state)),
          identity_(std::move(identity)),
          moment_us_(std::move(moment_us)),
          delay_us_(std::move(delay_us)),
          utc_moments_(utc_moments) {}

    struct Calls {  // what the loop calls
        nanobind::handle on_row, timers, emit, fault, fire;
    };

    // Every row to `on_row`; where the rows have times, timers that are due before a row fire before it.
    void rows(RowSource* source, const std::vector<Py_ssize_t>& key, const int64_t* times, const Calls& calls);

    // Timers of the key whose function runs.
    void at(nanobind::handle moment, Clock clock);
    void after(nanobind::handle delay);
    void clear();

    // The next timer before a time, as (time, order, key, state), or None; the key's function must run next, then `settle`.
    nanobind::object pop_due(Clock clock, int64_t before);
    void begin(nanobind::handle state);   // its key's function runs next
    void settle(nanobind::handle state);  // it has run: a key without state and timers is forgotten
    void start_delays(int64_t now_us);

    nanobind::object earliest(Clock clock);
    int64_t order(Clock clock) const { return queues_[clock].order(); }
    size_t entries(Clock clock) const { return queues_[clock].entries(); }
    nanobind::object key() const;                // whose function runs, or None
    bool has_delays() const { return !delays_.empty(); }
    nanobind::list states() const;               // (key, state) of those that have state
    nanobind::list timers(Clock clock) const;    // (time, key), as they will fire
    nanobind::list delays() const;               // (delay, key)

    // All keys as they are now, written piece by piece. A key whose function runs meanwhile is written before it does
    // (`test_what_is_written_in_slices_is_the_state_at_the_marker`). One writing at a time.
    void begin_writing(nanobind::object other);
    nanobind::object write(size_t most);  // up to so many more keys, or None where all are written
    void put(nanobind::object key, nanobind::object state);
    void put_timer(Clock clock, int64_t at, int64_t order, nanobind::object key);
    void put_delay(int64_t delay, nanobind::object key);

   private:
    struct Delay {
        int64_t us;
        int64_t cleared;  // the key's `delays_cleared` when this was set: it is void once that has changed
        nanobind::object state;

        bool alive() const { return as_key_state(state.ptr())->timers->delays_cleared == cleared; }
    };

    nanobind::object row_key(RowSource* source, const std::vector<Py_ssize_t>& columns, int64_t row) const;
    nanobind::object stand_in(nanobind::handle key) const;
    nanobind::object find(const nanobind::object& key);  // made where there is none, and then not in the table yet
    bool hand_over(const nanobind::object& key, const nanobind::object& row, const Calls& calls);
    void touch(KeyStateObject* state);  // it may change now
    KeyStateObject* running() const;
    int64_t moment(nanobind::handle given, Clock clock) const;
    void delay(KeyStateObject* state, int64_t us);

    nanobind::object make_state_, identity_, moment_us_, delay_us_;
    bool utc_moments_;  // a datetime in UTC is an event time as it is
    nanobind::dict states_;
    TimerQueue queues_[QUEUES] = {TimerQueue(EVENT), TimerQueue(PROCESSING)};
    std::vector<Delay> delays_;
    std::optional<StateWriter> writer_;  // while there is anything to write
    nanobind::list unwritten_;           // None in place of those that are written
    Py_ssize_t next_ = 0;
    uint32_t writing_ = 0;  // counts them
    nanobind::object running_;
};

}  // namespace penstock
