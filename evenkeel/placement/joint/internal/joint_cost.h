// Predicted milliseconds of homes, kept up to date while experts of a layer, and their copies, change ranks.
//
// A layer costs the compute of its slowest rank, assignment_us x load / speed. An exchange costs its slowest
// ordered pair of ranks, latency + assignment_bytes x traffic / bandwidth. Under layer_to_layer an exchange
// lies between two layers; under dispatch_combine each layer has one out and one back. An expert's load and
// traffic are split evenly over its copies.
//
// Cost        Entering a layer costs O(E^2). A change is judged in O(P) for each rank that it touches, and
//             carried out in O(P^2).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "evenkeel/placement/traffic.h"
#include "evenkeel/plan/dispatch.h"

namespace evenkeel::internal {

class JointCost {
 public:
  // The new homes of two experts of the entered layer; if y equals x, of x alone.
  struct Change {
    std::size_t x = 0;
    std::size_t y = 0;
    CopyRanks homes_of_x = {};
    CopyRanks homes_of_y = {};
  };

  JointCost(const PlacementProblem& problem, const Placement& start)
      : problem_(problem),
        num_experts_(static_cast<std::size_t>(problem.profile.num_experts())),
        num_ranks_(static_cast<std::size_t>(problem.topology.num_ranks())),
        dispatch_(problem.traffic == TrafficModel::dispatch_combine),
        parts_(num_ranks_) {
    for (RankId from : indices<RankId>(num_ranks_)) {
      compute_each_.push_back(computed_ms(problem.cost, problem.topology, from));
      for (RankId to : indices<RankId>(num_ranks_)) {
        const Link link = from == to ? Link{} : problem.topology.link(from, to);
        latency_ms_.push_back(from == to ? 0 : link.latency_us * 1e-3);
        assignment_ms_.push_back(from == to ? 0 : sent_ms(problem.cost, link));
      }
    }
    for (LayerId layer : indices<LayerId>(start.num_layers())) {
      homes_.push_back(copies_in(start.layer(layer.value())));
      load_.emplace_back(num_ranks_, 0.0);
      const auto loads = problem.profile.loads(layer);
      for (std::size_t e = 0; e < num_experts_; ++e)
        for (const int rank : homes_.back()[e])
          load_.back()[at(rank)] += static_cast<double>(loads[e]) * share(homes_.back()[e]);
    }
    for (LayerId exchange : indices<LayerId>(num_exchanges(problem))) {
      exchanges_.push_back({.traffic = exchange_traffic(problem, start, exchange)});
      refresh(exchanges_.back());
    }
  }

  double ms() const {
    double sum = 0;
    for (std::size_t layer = 0; layer < homes_.size(); ++layer) sum += std::ranges::max(compute_ms(layer));
    for (const Exchange& exchange : exchanges_) sum += exchange.ms();
    return sum;
  }
  Placement placement() const {
    std::vector<LayerPlacement> layers;
    for (const std::vector<CopyRanks>& homes : homes_)
      layers.emplace_back(homes, problem_.topology.num_ranks());
    return Placement(std::move(layers));
  }

  // Selects the layer that later changes and costs refer to.
  void enter(std::size_t layer) {
    layer_ = layer;
    sides_[0] = {.exchange = dispatch_   ? &exchanges_[layer]
                             : layer > 0 ? &exchanges_[layer - 1]
                                         : nullptr,
                 .flows = std::vector<double>(num_experts_ * num_ranks_, 0.0),
                 .receives = true};
    sides_[1] = {.exchange = !dispatch_ && layer + 1 < homes_.size() ? &exchanges_[layer] : nullptr,
                 .flows = std::vector<double>(num_experts_ * num_ranks_, 0.0),
                 .receives = false};
    fill_flows();
  }
  // The homes of each expert of the entered layer.
  const std::vector<CopyRanks>& homes() const { return homes_[layer_]; }
  // The part of the cost that a change in the entered layer can affect.
  double layer_ms() const {
    double sum = std::ranges::max(compute_ms(layer_));
    for (const Side& side : sides_)
      if (side.exchange != nullptr) sum += side.exchange->ms();
    return sum;
  }
  // Returns the exact cost if it is below `limit`, else some number >= `limit`. It first compares a lower
  // bound, the cost on ranks that the change does not touch; most changes fail there.
  double layer_ms_after(const Change& change, double limit) {
    touch(change);
    const auto& [receiving, sending] = sides_;
    const double rest = least_ms(sending);
    double ms = compute_ms_after(change);
    if (ms + rest + least_ms(receiving) >= limit) return limit;
    ms += ms_after(receiving, change, [&](double so_far) { return ms + so_far + rest >= limit; });
    if (ms + rest >= limit) return limit;
    return ms + ms_after(sending, change, [&](double so_far) { return ms + so_far >= limit; });
  }
  void carry_out(const Change& change) {
    touch(change);
    for (const Touched& each : touched_) {
      move(change.x, each.rank, each.of_x);
      move(change.y, each.rank, each.of_y);
    }
    set_homes(change.x, change.homes_of_x);
    if (change.y != change.x) set_homes(change.y, change.homes_of_y);
    for (const Side& side : sides_)
      if (side.exchange != nullptr) refresh(*side.exchange);
  }
  // Ranks that some expert must leave for layer_ms() to fall.
  std::vector<int> critical_ranks() const {
    const auto worst = [](const std::vector<double>& of_ranks) {
      return static_cast<int>(std::ranges::max_element(of_ranks) - of_ranks.begin());
    };
    std::vector<int> ranks{worst(compute_ms(layer_))};
    for (const Side& side : sides_) {
      if (side.exchange == nullptr) continue;
      ranks.push_back(worst(side.lines().out));
      if (dispatch_) ranks.push_back(worst(side.lines().back));
    }
    return ranks;
  }

 private:
  struct Lines {  // [P] ms of the slowest pair in each row or column, out and back
    std::vector<double> out;
    std::vector<double> back;
  };
  struct Exchange {
    RankTraffic traffic;
    Lines senders = {};
    Lines receivers = {};
    double ms() const { return std::ranges::max(senders.out) + std::ranges::max(senders.back); }
  };
  // An exchange in which the entered layer's experts receive or send; null if there is none.
  struct Side {
    Exchange* exchange = nullptr;
    std::vector<double> flows = {};  // [E, P] traffic between an expert and the ranks at the other end
    bool receives = true;

    const Lines& lines() const { return receives ? exchange->receivers : exchange->senders; }
  };

  // A rank that gains or loses parts of the two experts of a change.
  struct Touched {
    std::size_t rank;
    double of_x;
    double of_y;
  };

  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }
  // The part of its expert that one copy computes.
  static double share(const CopyRanks& homes) { return 1 / static_cast<double>(homes.size()); }
  // Index of the pair: `here` is the rank of the layer's experts, `other` the rank at the other end.
  std::size_t pair(const Side& side, std::size_t here, std::size_t other) const {
    return side.receives ? other * num_ranks_ + here : here * num_ranks_ + other;
  }
  double pair_ms(std::size_t pair, double traffic) const {
    return latency_ms_[pair] + traffic * assignment_ms_[pair];
  }

  void refresh(Exchange& exchange) const {
    for (Lines* lines : {&exchange.senders, &exchange.receivers}) {
      lines->out.assign(num_ranks_, 0.0);
      lines->back.assign(num_ranks_, 0.0);
    }
    for (std::size_t from = 0; from < num_ranks_; ++from)
      for (std::size_t to = 0; to < num_ranks_; ++to) {
        const double traffic = exchange.traffic[from * num_ranks_ + to];
        const double out = pair_ms(from * num_ranks_ + to, traffic);
        const double back = dispatch_ ? pair_ms(to * num_ranks_ + from, traffic) : 0;
        exchange.senders.out[from] = std::max(exchange.senders.out[from], out);
        exchange.receivers.out[to] = std::max(exchange.receivers.out[to], out);
        exchange.senders.back[from] = std::max(exchange.senders.back[from], back);
        exchange.receivers.back[to] = std::max(exchange.receivers.back[to], back);
      }
  }

  void fill_flows() {
    auto& [in, out] = sides_;
    if (dispatch_) {
      for (std::size_t source = 0; source < num_ranks_; ++source)
        for (std::size_t e = 0; e < num_experts_; ++e)
          in.flows[e * num_ranks_ + source] =
              problem_.sources.at(LayerId(layer_), RankId(source), ExpertId(e));
      return;
    }
    for (std::size_t from = 0; from < num_experts_ && in.exchange != nullptr; ++from) {
      const std::int64_t* counts = &problem_.profile.transitions(LayerId(layer_ - 1))[from * num_experts_];
      const CopyRanks& senders = homes_[layer_ - 1][from];
      for (std::size_t e = 0; e < num_experts_; ++e)
        for (const int rank : senders)
          in.flows[e * num_ranks_ + at(rank)] += static_cast<double>(counts[e]) * share(senders);
    }
    for (std::size_t e = 0; e < num_experts_ && out.exchange != nullptr; ++e) {
      const std::int64_t* counts = &problem_.profile.transitions(LayerId(layer_))[e * num_experts_];
      for (std::size_t to = 0; to < num_experts_; ++to)
        for (const int rank : homes_[layer_ + 1][to])
          out.flows[e * num_ranks_ + at(rank)] +=
              static_cast<double>(counts[to]) * share(homes_[layer_ + 1][to]);
    }
  }

  // [P]
  std::vector<double> compute_ms(std::size_t layer) const {
    std::vector<double> ms = load_[layer];
    for (std::size_t rank = 0; rank < num_ranks_; ++rank) ms[rank] *= compute_each_[rank];
    return ms;
  }

  void touch(const Change& change) {
    add_parts(homes()[change.x], -1, &Touched::of_x);
    add_parts(change.homes_of_x, 1, &Touched::of_x);
    if (change.y != change.x) {
      add_parts(homes()[change.y], -1, &Touched::of_y);
      add_parts(change.homes_of_y, 1, &Touched::of_y);
    }
    touched_.clear();
    for (const CopyRanks* ranks :
         {&homes()[change.x], &homes()[change.y], &change.homes_of_x, &change.homes_of_y})
      for (const int rank : *ranks) {
        Touched& each = parts_[at(rank)];
        if (each.of_x != 0 || each.of_y != 0) touched_.push_back({at(rank), each.of_x, each.of_y});
        each = {};
      }
  }
  void add_parts(const CopyRanks& homes, double sign, double Touched::*of) {
    for (const int rank : homes) parts_[at(rank)].*of += sign * share(homes);
  }

  double compute_ms_after(const Change& change) {
    const auto loads = problem_.profile.loads(LayerId(layer_));
    scratch_ = load_[layer_];
    for (const Touched& each : touched_)
      scratch_[each.rank] +=
          each.of_x * static_cast<double>(loads[change.x]) + each.of_y * static_cast<double>(loads[change.y]);
    double slowest = 0;
    for (std::size_t rank = 0; rank < num_ranks_; ++rank)
      slowest = std::max(slowest, scratch_[rank] * compute_each_[rank]);
    return slowest;
  }

  double largest_untouched(const std::vector<double>& of_ranks) {
    scratch_ = of_ranks;
    for (const Touched& each : touched_) scratch_[each.rank] = 0;
    return std::ranges::max(scratch_);
  }

  // Cost of the pairs that the change does not touch, one way only.
  double least_ms(const Side& side) {
    return side.exchange == nullptr ? 0 : largest_untouched(side.lines().out);
  }

  // Stops early once is_too_much() is true; the result is then only a lower bound.
  template <class F>
  double ms_after(const Side& side, const Change& change, F is_too_much) {
    if (side.exchange == nullptr) return 0;
    double out = largest_untouched(side.lines().out);
    double back = dispatch_ ? largest_untouched(side.lines().back) : 0;
    for (const Touched& each : touched_) {
      if (is_too_much(out + back)) break;
      for (std::size_t other = 0; other < num_ranks_; ++other) {
        const double traffic = side.exchange->traffic[pair(side, each.rank, other)] +
                               (each.of_x * side.flows[change.x * num_ranks_ + other] +
                                each.of_y * side.flows[change.y * num_ranks_ + other]);
        out = std::max(out, pair_ms(pair(side, each.rank, other), traffic));
        if (dispatch_) back = std::max(back, pair_ms(pair(side, other, each.rank), traffic));
      }
    }
    return out + back;
  }

  // Adds `part` of the expert to the rank; a negative part is taken away from the rank.
  void move(std::size_t expert, std::size_t rank, double part) {
    load_[layer_][rank] += part * static_cast<double>(problem_.profile.loads(LayerId(layer_))[expert]);
    for (Side& side : sides_)
      for (std::size_t other = 0; other < num_ranks_ && side.exchange != nullptr; ++other)
        side.exchange->traffic[pair(side, rank, other)] += part * side.flows[expert * num_ranks_ + other];
  }

  void set_homes(std::size_t expert, const CopyRanks& ranks) {
    homes_[layer_][expert] = ranks;
    std::ranges::sort(homes_[layer_][expert]);
  }

  const PlacementProblem& problem_;
  std::size_t num_experts_, num_ranks_;
  bool dispatch_;
  std::vector<std::vector<CopyRanks>> homes_;  // [L][E]
  std::vector<double> latency_ms_;             // [P, P]
  std::vector<double> assignment_ms_;          // [P, P] one assignment sent; 0 from a rank to itself
  std::vector<double> compute_each_;           // [P] ms of one assignment
  std::vector<std::vector<double>> load_;      // [L][P]
  std::vector<Exchange> exchanges_;
  std::size_t layer_ = 0;
  std::array<Side, 2> sides_;     // receiving and sending
  std::vector<Touched> parts_;    // [P] zero between calls
  std::vector<Touched> touched_;  // ranks touched by the change being judged
  std::vector<double> scratch_;   // [P]
};

}  // namespace evenkeel::internal
