#include "simulate/virtual_region.hpp"

#include <algorithm>

namespace penstock {

namespace {
constexpr std::size_t rebalance_choices = 4;
}

Region::Region(std::size_t replicas, RegionShape shape, std::vector<Phase> phases, std::uint64_t seed)
    : shape_(shape), phases_(std::move(phases)), random_(seed), connections_(replicas), blocked_(replicas, 0.0), sent_(replicas, 0.0), worked_off_(replicas, 0.0), took_(replicas, 0.0) {
    for (auto &connection : connections_) {
        connection.starts.assign(static_cast<std::size_t>(shape_.buffer), 0.0);
        connection.dones.assign(static_cast<std::size_t>(shape_.buffer) + 1, 0.0);
        connection.numbers.assign(static_cast<std::size_t>(shape_.buffer) + 1, 0);
        connection.exits.assign(static_cast<std::size_t>(shape_.merger_rows), 0.0);
    }
}

void Region::set_turns(std::span<const std::int32_t> turns, Routing routing) {
    turns_.assign(turns.begin(), turns.end());
    routing_ = routing;
    turn_ = 0;
}

void Region::advance(double until, std::int64_t rows) {
    while (clock_ < until && (waiting_ || next_row_ < rows)) {
        if (!waiting_) {
            clock_ += shape_.send_seconds;
            waits_for_ = choose(clock_);
            const auto &connection = connections_[waits_for_];
            if (!full(connection, clock_)) {
                deliver(waits_for_);
                continue;
            }
            const std::int64_t freed = connection.count - shape_.buffer + shape_.low_water - 1;
            waits_until_ = connection.starts[static_cast<std::size_t>(freed % shape_.buffer)];
            charged_ = shape_.charge_laggard ? laggard(waits_for_, clock_) : waits_for_;
            waiting_ = true;
        }
        const double end = std::max(clock_, std::min(waits_until_, until));
        blocked_[charged_] += end - clock_;
        clock_ = end;
        if (clock_ >= waits_until_) {
            waiting_ = false;
            deliver(waits_for_);
        }
    }
}

std::size_t Region::choose(double now) {
    const auto first = static_cast<std::size_t>(turns_[turn_]);
    turn_ = turn_ + 1 == turns_.size() ? 0 : turn_ + 1;
    switch (routing_) {
        case Routing::reroute: return passed_by(first, now);
        case Routing::rebalance: return emptiest(first, now);
        case Routing::turns: break;
    }
    return first;
}

bool Region::full(const Connection &connection, double now) const {
    if (connection.count < shape_.buffer) return false;
    return connection.starts[static_cast<std::size_t>(connection.count % shape_.buffer)] > now;
}

std::size_t Region::passed_by(std::size_t first, double now) const {
    for (std::size_t i = 0; i < connections_.size(); ++i) {
        const std::size_t other = (first + i) % connections_.size();
        if (!full(connections_[other], now)) return other;
    }
    return first;
}

std::size_t Region::emptiest(std::size_t first, double now) {
    std::size_t best = first;
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (std::size_t i = 0; i < std::min(rebalance_choices, connections_.size()); ++i) {
        const std::size_t other = (first + i) % connections_.size();
        const std::int64_t rows = queued(connections_[other], now);
        if (rows < least) {
            least = rows;
            best = other;
        }
    }
    return best;
}

std::int64_t Region::queued(Connection &connection, double now) const {
    const auto &starts = connection.starts;
    while (connection.head < connection.count && starts[static_cast<std::size_t>(connection.head % shape_.buffer)] <= now) {
        ++connection.head;
    }
    return connection.count - connection.head;
}

std::size_t Region::laggard(std::size_t fallback, double now) {
    std::size_t found = fallback;
    std::int64_t oldest = std::numeric_limits<std::int64_t>::max();
    const std::int64_t ring = shape_.buffer + 1;  // one row is in work while the buffer is full
    for (std::size_t j = 0; j < connections_.size(); ++j) {
        auto &connection = connections_[j];
        auto &first = connection.unfinished;
        while (first < connection.count && connection.dones[static_cast<std::size_t>(first % ring)] <= now) ++first;
        if (first == connection.count) continue;
        const std::int64_t number = connection.numbers[static_cast<std::size_t>(first % ring)];
        if (number < oldest) {
            oldest = number;
            found = j;
        }
    }
    return found;
}

double Region::cost(std::size_t replica, double start) const {
    for (std::size_t i = phases_.size(); i-- > 1;) {
        if (start >= phases_[i].from_seconds && static_cast<double>(next_row_) >= phases_[i].from_row) return phases_[i].cost[replica];
    }
    return phases_[0].cost[replica];
}

void Region::deliver(std::size_t replica) {
    auto &connection = connections_[replica];
    const auto slot = static_cast<std::size_t>(connection.count % shape_.buffer);
    // The row that is overwritten here has been started: that made room for this one.
    connection.head = std::max(connection.head, connection.count - shape_.buffer + 1);
    connection.unfinished = std::max(connection.unfinished, connection.count - shape_.buffer);
    const double start = std::max(clock_, connection.free);
    const double uniform = static_cast<double>(random_.next() >> 11) * 0x1.0p-53;
    const double done = start + cost(replica, start) * (1 + shape_.jitter * (2 * uniform - 1));
    double out = done;
    if (shape_.merger_rows > 0) {
        auto &exit = connection.exits[static_cast<std::size_t>(connection.count % shape_.merger_rows)];
        out = std::max(out, exit);  // the row that had this place in the merger must have left it
        last_exit_ = std::max(out, last_exit_) + shape_.merge_seconds;
        exit = last_exit_;
    } else {
        last_exit_ = std::max(out, last_exit_) + shape_.merge_seconds;
    }
    connection.starts[slot] = start;
    const auto place = static_cast<std::size_t>(connection.count % (shape_.buffer + 1));
    connection.dones[place] = done;
    connection.numbers[place] = next_row_;
    connection.free = out;
    connection.in_work.emplace_back(start, out);
    ++connection.count;
    ++next_row_;
    sent_[replica] += 1;
    inside_.emplace_back(out, last_exit_);
}

void Region::note_worked_off(double time) {
    for (std::size_t j = 0; j < connections_.size(); ++j) {
        auto &rows = connections_[j].in_work;
        for (; !rows.empty() && rows.front().second <= time; rows.pop_front()) {
            worked_off_[j] += 1;
            took_[j] += rows.front().second - rows.front().first;
        }
    }
}

std::int64_t Region::left_by(double time) {
    while (!inside_.empty() && inside_.front().second <= time) {
        inside_.pop_front();
        ++left_;
    }
    return left_;
}

std::int64_t Region::held_at(double time) const {
    return std::count_if(inside_.begin(), inside_.end(), [time](const auto &row) { return row.first <= time && row.second > time; });
}

}  // namespace penstock
