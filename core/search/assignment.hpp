// An assignment of vertices to nodes. What searches ask for is kept up to date: each node's load, memory, sent and
// received traffic, and vertices. A move or swap changes the figures of two nodes, also of what they send and receive:
// traffic to a third node leaves from another node but still arrives (`test_random_moves_and_swaps_keep_the_books`).
#pragma once

#include <span>
#include <vector>

#include "search/graph.hpp"

namespace penstock {

// Traffic of one vertex with two nodes, "here" where it is and "there" where it may go, and with all others.
struct Flow {
    double out_here = 0, in_here = 0, out_there = 0, in_there = 0, out_all = 0, in_all = 0;
};

// What a move adds to sent and received of the node left and of the node entered.
struct Shift {
    double sent_here = 0, received_here = 0, sent_there = 0, received_there = 0;
};

class State {
  public:
    State(const Graph &graph, const Limits &limits, std::span<const Id> node);

    const Graph &graph() const { return *graph_; }
    const Limits &limits() const { return *limits_; }
    const std::vector<Id> &node() const { return node_; }
    Id node_of(Id vertex) const { return node_[vertex]; }
    const std::vector<Id> &members(Id node) const { return members_[node]; }
    double load(Id node) const { return load_[node]; }
    double sent(Id node) const { return sent_.empty() ? 0.0 : sent_[node]; }
    double received(Id node) const { return received_.empty() ? 0.0 : received_[node]; }
    bool limited() const { return !limits_->memory.empty() || !limits_->bandwidth.empty(); }

    // Rates between vertices on different nodes, summed afresh.
    double cost() const;
    // How far nodes are above their limits: the sum of relative excesses of load, memory, sent and received.
    double overload() const;
    double overload(Id node) const;
    double overload_after_move(Id vertex, Id there) const;  // of the two nodes together
    double overload_after_swap(Id a, Id b) const;

    // What the cut grows by when `vertex` goes `there`.
    double change_of_move(Id vertex, Id there) const;
    double change_of_swap(Id a, Id b) const;

    // Whether the change keeps every limit. A limit that is exceeded already may stay so but not get worse.
    bool move_fits(Id vertex, Id there) const;
    bool swap_fits(Id a, Id b) const;

    // Load alone, the common case, without a branch on what else is limited.
    bool load_fits(Id vertex, Id there) const { return load_[there] + graph_->load[vertex] <= limits_->load[there]; }
    bool loads_swap(Id a, Id b) const {
        const double more = graph_->load[a] - graph_->load[b];
        const Id here = node_[a], there = node_[b];
        return load_[there] + more <= limits_->load[there] && load_[here] - more <= limits_->load[here];
    }

    void move(Id vertex, Id there);
    void swap(Id a, Id b) {
        const Id here = node_[a], there = node_[b];
        move(a, there);
        move(b, here);
    }

  private:
    Flow flow(Id vertex, Id there) const;
    Shift shift(Id vertex, Id there) const;
    Shift shift_of_swap(Id a, Id b) const;
    double excess(Id node, double load, double memory, double sent, double received) const;
    double memory_of(Id vertex) const { return graph_->memory.empty() ? 0.0 : graph_->memory[vertex]; }
    double memory_on(Id node) const { return memory_.empty() ? 0.0 : memory_[node]; }

    const Graph *graph_;
    const Limits *limits_;
    std::vector<Id> node_;
    std::vector<double> load_, memory_, sent_, received_;
    std::vector<std::vector<Id>> members_;
    std::vector<Id> position_;  // of a vertex among the members of its node
};

}  // namespace penstock
