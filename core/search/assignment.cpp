#include "search/assignment.hpp"

#include <algorithm>

namespace penstock {

namespace {

Shift shift_of(const Flow &flow) {
    return {.sent_here = flow.in_here - (flow.out_all - flow.out_here),
            .received_here = flow.out_here - (flow.in_all - flow.in_here),
            .sent_there = (flow.out_all - flow.out_there) - flow.in_there,
            .received_there = (flow.in_all - flow.in_there) - flow.out_there};
}

// A limit may stay exceeded, but no change may make it worse.
bool keeps(double now, double change, double limit) { return change <= 0 || now + change <= limit; }

double above(double amount, double limit) { return amount <= limit ? 0.0 : amount / limit - 1.0; }

}  // namespace

State::State(const Graph &graph, const Limits &limits, std::span<const Id> node)
    : graph_(&graph), limits_(&limits), node_(node.begin(), node.end()), load_(limits.size(), 0.0),
      members_(limits.size()), position_(graph.size()) {
    if (!limits.memory.empty()) memory_.assign(limits.size(), 0.0);
    if (!limits.bandwidth.empty()) {
        sent_.assign(limits.size(), 0.0);
        received_.assign(limits.size(), 0.0);
    }
    for (Id v = 0; v < graph.size(); ++v) {
        const Id here = node_[v];
        load_[here] += graph.load[v];
        if (!memory_.empty()) memory_[here] += memory_of(v);
        position_[v] = static_cast<Id>(members_[here].size());
        members_[here].push_back(v);
        if (sent_.empty()) continue;
        for (Id at = graph.start[v]; at < graph.start[v + 1]; ++at) {
            if (node_[graph.arcs[at].to] == here) continue;
            sent_[here] += graph.outward[at];
            received_[here] += graph.inward[at];
        }
    }
}

double State::cost() const {
    double total = 0;
    for (Id v = 0; v < graph_->size(); ++v) {
        for (const Arc &arc : graph_->row(v)) {
            if (node_[arc.to] != node_[v]) total += arc.rate;
        }
    }
    return total / 2;
}

double State::excess(Id node, double load, double memory, double sent, double received) const {
    double sum = above(load, limits_->load[node]);
    if (!memory_.empty()) sum += above(memory, limits_->memory[node]);
    if (!sent_.empty()) sum += above(sent, limits_->bandwidth[node]) + above(received, limits_->bandwidth[node]);
    return sum;
}

double State::overload(Id node) const {
    return excess(node, load_[node], memory_on(node), sent(node), received(node));
}

double State::overload() const {
    double sum = 0;
    for (Id node = 0; node < limits_->size(); ++node) sum += overload(node);
    return sum;
}

double State::overload_after_move(Id vertex, Id there) const {
    const Id here = node_[vertex];
    const double load = graph_->load[vertex], memory = memory_of(vertex);
    const Shift s = sent_.empty() ? Shift{} : shift(vertex, there);
    return excess(here, load_[here] - load, memory_on(here) - memory, sent(here) + s.sent_here,
                  received(here) + s.received_here) +
           excess(there, load_[there] + load, memory_on(there) + memory, sent(there) + s.sent_there,
                  received(there) + s.received_there);
}

double State::overload_after_swap(Id a, Id b) const {
    const Id here = node_[a], there = node_[b];
    const double load = graph_->load[a] - graph_->load[b], memory = memory_of(a) - memory_of(b);
    const Shift s = sent_.empty() ? Shift{} : shift_of_swap(a, b);
    return excess(here, load_[here] - load, memory_on(here) - memory, sent(here) + s.sent_here,
                  received(here) + s.received_here) +
           excess(there, load_[there] + load, memory_on(there) + memory, sent(there) + s.sent_there,
                  received(there) + s.received_there);
}

double State::change_of_move(Id vertex, Id there) const {
    const Id here = node_[vertex];
    double change = 0;
    for (const Arc &arc : graph_->row(vertex)) {
        const Id at = node_[arc.to];
        if (at == here) change += arc.rate;
        if (at == there) change -= arc.rate;
    }
    return change;
}

double State::change_of_swap(Id a, Id b) const {
    double between = 0;
    for (const Arc &arc : graph_->row(a)) {
        if (arc.to == b) between += arc.rate;
    }
    return change_of_move(a, node_[b]) + change_of_move(b, node_[a]) + 2 * between;
}

Flow State::flow(Id vertex, Id there) const {
    const Id here = node_[vertex];
    Flow flow;
    for (Id at = graph_->start[vertex]; at < graph_->start[vertex + 1]; ++at) {
        const Id node = node_[graph_->arcs[at].to];
        const double out = graph_->outward[at], in = graph_->inward[at];
        flow.out_all += out;
        flow.in_all += in;
        if (node == here) {
            flow.out_here += out;
            flow.in_here += in;
        } else if (node == there) {
            flow.out_there += out;
            flow.in_there += in;
        }
    }
    return flow;
}

Shift State::shift(Id vertex, Id there) const { return shift_of(flow(vertex, there)); }

Shift State::shift_of_swap(Id a, Id b) const {
    // `a` goes first; `b` then finds it on its own node instead of on the node that it goes to.
    double a_to_b = 0, b_to_a = 0;
    for (Id at = graph_->start[a]; at < graph_->start[a + 1]; ++at) {
        if (graph_->arcs[at].to != b) continue;
        a_to_b += graph_->outward[at];
        b_to_a += graph_->inward[at];
    }
    const Shift first = shift(a, node_[b]);
    Flow flow_b = flow(b, node_[a]);
    flow_b.out_here += b_to_a;
    flow_b.in_here += a_to_b;
    flow_b.out_there -= b_to_a;
    flow_b.in_there -= a_to_b;
    const Shift second = shift_of(flow_b);
    return {.sent_here = first.sent_here + second.sent_there,
            .received_here = first.received_here + second.received_there,
            .sent_there = first.sent_there + second.sent_here,
            .received_there = first.received_there + second.received_here};
}

bool State::move_fits(Id vertex, Id there) const {
    if (!keeps(load_[there], graph_->load[vertex], limits_->load[there])) return false;
    if (!memory_.empty() && !keeps(memory_[there], memory_of(vertex), limits_->memory[there])) return false;
    if (sent_.empty()) return true;
    const Id here = node_[vertex];
    const Shift s = shift(vertex, there);
    return keeps(sent_[here], s.sent_here, limits_->bandwidth[here]) &&
           keeps(received_[here], s.received_here, limits_->bandwidth[here]) &&
           keeps(sent_[there], s.sent_there, limits_->bandwidth[there]) &&
           keeps(received_[there], s.received_there, limits_->bandwidth[there]);
}

bool State::swap_fits(Id a, Id b) const {
    const Id here = node_[a], there = node_[b];
    const double load = graph_->load[a] - graph_->load[b];
    if (!keeps(load_[there], load, limits_->load[there]) || !keeps(load_[here], -load, limits_->load[here])) {
        return false;
    }
    if (!memory_.empty()) {
        const double memory = memory_of(a) - memory_of(b);
        if (!keeps(memory_[there], memory, limits_->memory[there])) return false;
        if (!keeps(memory_[here], -memory, limits_->memory[here])) return false;
    }
    if (sent_.empty()) return true;
    const Shift s = shift_of_swap(a, b);
    return keeps(sent_[here], s.sent_here, limits_->bandwidth[here]) &&
           keeps(received_[here], s.received_here, limits_->bandwidth[here]) &&
           keeps(sent_[there], s.sent_there, limits_->bandwidth[there]) &&
           keeps(received_[there], s.received_there, limits_->bandwidth[there]);
}

void State::move(Id vertex, Id there) {
    const Id here = node_[vertex];
    if (here == there) return;
    if (!sent_.empty()) {
        const Shift s = shift(vertex, there);
        sent_[here] += s.sent_here;
        received_[here] += s.received_here;
        sent_[there] += s.sent_there;
        received_[there] += s.received_there;
    }
    load_[here] -= graph_->load[vertex];
    load_[there] += graph_->load[vertex];
    if (!memory_.empty()) {
        memory_[here] -= memory_of(vertex);
        memory_[there] += memory_of(vertex);
    }
    auto &left = members_[here];
    const Id last = left.back();
    left[position_[vertex]] = last;
    position_[last] = position_[vertex];
    left.pop_back();
    position_[vertex] = static_cast<Id>(members_[there].size());
    members_[there].push_back(vertex);
    node_[vertex] = there;
}

}  // namespace penstock
