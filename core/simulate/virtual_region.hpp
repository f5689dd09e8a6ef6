// A parallel region under virtual time: one splitter, N connections with replicas behind them, one in-order merger.
//
// No event queue is needed. The splitter sends in order, connections keep the order, and the merger restores it. So
// every moment of a row's life is a maximum of earlier moments and is known when the row is sent:
//
//     send   = max(splitter free, room in the connection)     room comes when the replica starts an earlier row
//     start  = max(send, replica free)
//     out    = max(start + cost, room in the merger)
//     exit   = max(out, exit of the row before)
//
// So a row costs a few tens of nanoseconds, and runs are exactly repeatable. Drafting (other connections drain while one
// blocks the splitter) needs no model: it follows from one splitter with one clock (`test_equal_replicas_draft`).
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <span>
#include <vector>

#include "search/random.hpp"

namespace penstock {

enum class Routing : std::uint8_t { turns, reroute, rebalance };

struct RegionShape {
    std::int64_t buffer = 0;        // rows that a connection holds before its replica has started them
    std::int64_t low_water = 1;     // room, in rows, that ends a wait: 1 for a ring, a third of the buffer for TCP
    std::int64_t merger_rows = 0;   // rows of one replica that the merger holds; 0: no limit
    double send_seconds = 0;        // what one row costs the splitter
    double merge_seconds = 0;       // and the merger
    double jitter = 0;              // a row costs its replica from (1 - jitter) to (1 + jitter) times its cost
    bool charge_laggard = false;    // a wait is charged to the replica with the oldest unfinished row
};

// From this time, or from this row on (whichever is finite and reached), replicas take these times for a row.
struct Phase {
    double from_seconds = 0;
    double from_row = 0;
    std::vector<double> cost;
};

class Region {
  public:
    Region(std::size_t replicas, RegionShape shape, std::vector<Phase> phases, std::uint64_t seed);

    // Positions of the replicas in the order of their turns; a cycle.
    void set_turns(std::span<const std::int32_t> turns, Routing routing);

    // Send until the splitter's clock shows `until`, or until `rows` rows have been sent in all.
    void advance(double until, std::int64_t rows);

    // Rows that have left the merger by a time; time must not go back.
    std::int64_t left_by(double time);
    // Notes the rows that each replica has worked off and handed to the merger by a time; time must not go back.
    void note_worked_off(double time);
    // The noted rows, and the time that their replicas worked on them, including waits for the merger's room.
    const std::vector<double> &worked_off_rows() const { return worked_off_; }
    const std::vector<double> &took_seconds() const { return took_; }
    // Rows that have reached the merger by a time and have not left it.
    std::int64_t held_at(double time) const;

    double clock() const { return clock_; }
    // Turns of the present cycle that have been used, counted from its beginning each time round.
    std::size_t turn() const { return turn_; }
    double last_exit() const { return last_exit_; }
    std::int64_t sent() const { return next_row_; }
    const std::vector<double> &blocked_seconds() const { return blocked_; }
    const std::vector<double> &sent_rows() const { return sent_; }

  private:
    struct Connection {
        std::vector<double> starts;        // of the last `buffer` rows, as a ring
        std::vector<double> dones;          // when the last `buffer` + 1 rows are worked off, as a ring
        std::vector<std::int64_t> numbers;  // their positions in the stream
        std::vector<double> exits;         // of the last `merger_rows` rows, as a ring
        std::int64_t count = 0;            // rows sent
        std::int64_t head = 0;             // the first row that had not been started when last asked
        std::int64_t unfinished = 0;       // the first row that had not been worked off when last asked
        double free = 0;                   // when the replica can start another row
        std::deque<std::pair<double, double>> in_work;  // start and out of rows that had not been noted as worked off
    };

    std::size_t choose(double now);
    std::size_t passed_by(std::size_t first, double now) const;
    std::size_t emptiest(std::size_t first, double now);
    bool full(const Connection &connection, double now) const;
    std::int64_t queued(Connection &connection, double now) const;
    std::size_t laggard(std::size_t fallback, double now);
    double cost(std::size_t replica, double start) const;
    void deliver(std::size_t replica);

    RegionShape shape_;
    std::vector<Phase> phases_;
    Random random_;
    std::vector<Connection> connections_;
    std::vector<std::int32_t> turns_;
    Routing routing_ = Routing::turns;
    std::size_t turn_ = 0;
    double clock_ = 0;
    double last_exit_ = 0;
    std::int64_t next_row_ = 0;
    std::int64_t left_ = 0;
    std::deque<std::pair<double, double>> inside_;  // out and exit of rows that had not left when last asked
    std::vector<double> blocked_;
    std::vector<double> sent_;
    std::vector<double> worked_off_;
    std::vector<double> took_;

    // A wait in which the last call of `advance` ended: for which replica, until when, and which replica is charged.
    bool waiting_ = false;
    std::size_t waits_for_ = 0;
    std::size_t charged_ = 0;
    double waits_until_ = 0;
};

}  // namespace penstock
