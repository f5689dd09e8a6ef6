#include "search/place/refine.hpp"

#include <queue>
#include <vector>

namespace penstock {

namespace {

constexpr double gain_min = 1e-9;     // relative to the mean rate: below it a gain is rounding
constexpr int patience_moves = 500;   // a pass ends after this many moves without a new cheapest moment

struct Step {
    Id vertex, from;
};

class Pass {
  public:
    explicit Pass(State &state) : state_(state), locked_(state.graph().size(), 0), rate_(state.limits().size(), 0.0f) {
        for (Id v = 0; v < state.graph().size(); ++v) offer(v);
    }

    // What the pass gained; the state is left at its cheapest moment.
    double run(const Cap &cap) {
        double sum = 0, best = 0;
        std::size_t kept = 0;
        int idle = 0;
        while (!waiting_.empty() && idle < patience_moves && !cap.passed()) {
            const auto [gain, v] = waiting_.top();
            waiting_.pop();
            if (locked_[v]) continue;
            const auto [now, there] = best_move(v);
            if (there < 0) continue;
            if (now < gain) {  // the offer is out of date
                waiting_.emplace(now, v);
                continue;
            }
            take(v, there);
            sum += now;
            ++idle;
            if (sum > best) {
                best = sum;
                kept = steps_.size();
                idle = 0;
            }
        }
        for (std::size_t i = steps_.size(); i > kept; --i) state_.move(steps_[i - 1].vertex, steps_[i - 1].from);
        return best;
    }

  private:
    std::pair<float, Id> best_move(Id v) {
        const Id here = state_.node_of(v);
        for (const Arc &arc : state_.graph().row(v)) rate_[state_.node_of(arc.to)] += arc.rate;
        Id best = -1;
        for (const Arc &arc : state_.graph().row(v)) {
            const Id k = state_.node_of(arc.to);
            if (k != here && (best < 0 || rate_[k] > rate_[best]) && state_.move_fits(v, k)) best = k;
        }
        const float gain = best < 0 ? 0.0f : rate_[best] - rate_[here];
        for (const Arc &arc : state_.graph().row(v)) rate_[state_.node_of(arc.to)] = 0.0f;
        rate_[here] = 0.0f;
        return {gain, best};
    }

    void offer(Id v) {
        if (locked_[v]) return;
        const auto [gain, there] = best_move(v);
        if (there >= 0) waiting_.emplace(gain, v);
    }

    void take(Id v, Id there) {
        steps_.push_back({v, state_.node_of(v)});
        locked_[v] = 1;
        state_.move(v, there);
        for (const Arc &arc : state_.graph().row(v)) offer(arc.to);
    }

    State &state_;
    std::vector<char> locked_;
    std::vector<float> rate_;
    std::vector<Step> steps_;
    std::priority_queue<std::pair<float, Id>> waiting_;
};

}  // namespace

void refine(State &state, int passes_max, const Cap &cap) {
    const double worth = gain_min * state.graph().mean_rate();
    for (int pass = 0; pass < passes_max && !cap.passed(); ++pass) {
        if (Pass(state).run(cap) <= worth) break;
    }
}

}  // namespace penstock
