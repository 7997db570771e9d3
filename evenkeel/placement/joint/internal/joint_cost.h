// Predicted milliseconds of homes, kept up to date while experts of a layer swap ranks.
//
// A layer costs the compute of its slowest rank, assignment_us x load / speed. An exchange costs its slowest
// ordered pair of ranks, latency + assignment_bytes x traffic / bandwidth; under layer_to_layer it lies
// between two layers, under dispatch_combine each layer has one out and one back.
//
// Cost        A change is judged in O(P); entering a layer costs O(E^2), carrying out a change O(P^2).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "evenkeel/placement/traffic.h"

namespace evenkeel::internal {

using Homes = std::vector<std::vector<int>>;  // [L][E] rank of each expert

class JointCost {
 public:
  // Expert x goes to the rank of y, and y, where there is one, to that of x; without, `to` says where x goes.
  struct Change {
    std::size_t x;
    std::optional<std::size_t> y;
    std::size_t to;
  };

  JointCost(const PlacementProblem& problem, Homes homes)
      : problem_(problem),
        num_experts_(static_cast<std::size_t>(problem.profile.num_experts())),
        num_ranks_(static_cast<std::size_t>(problem.topology.num_ranks())),
        dispatch_(problem.traffic == TrafficModel::dispatch_combine),
        homes_(std::move(homes)) {
    for (RankId from : indices<RankId>(num_ranks_)) {
      compute_each_.push_back(computed_ms(problem.cost, problem.topology, from));
      for (RankId to : indices<RankId>(num_ranks_)) {
        const Link link = from == to ? Link{} : problem.topology.link(from, to);
        latency_ms_.push_back(from == to ? 0 : link.latency_us * 1e-3);
        assignment_ms_.push_back(from == to ? 0 : sent_ms(problem.cost, link));
      }
    }
    for (std::size_t layer = 0; layer < homes_.size(); ++layer) {
      load_.emplace_back(num_ranks_, 0.0);
      const auto loads = problem.profile.loads(LayerId(layer));
      for (std::size_t e = 0; e < num_experts_; ++e)
        load_.back()[home(layer, e)] += static_cast<double>(loads[e]);
    }
    const Placement placement = placement_of(homes_, problem.topology.num_ranks());
    for (LayerId exchange : indices<LayerId>(num_exchanges(problem))) {
      exchanges_.push_back({.traffic = exchange_traffic(problem, placement, exchange)});
      refresh(exchanges_.back());
    }
  }

  double ms() const {
    double sum = 0;
    for (std::size_t layer = 0; layer < homes_.size(); ++layer) sum += std::ranges::max(compute_ms(layer));
    for (const Exchange& exchange : exchanges_) sum += exchange.ms();
    return sum;
  }
  const Homes& homes() const { return homes_; }

  // Changes are of one layer at a time.
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
  // Of what a change in this layer can change.
  double layer_ms() const {
    double sum = std::ranges::max(compute_ms(layer_));
    for (const Side& side : sides_)
      if (side.exchange != nullptr) sum += side.exchange->ms();
    return sum;
  }
  // Exact where it is below `limit`, else some number that is not. The cost on ranks that the change does not
  // touch is a lower bound, and most changes fail at it.
  double layer_ms_after(const Change& change, double limit) const {
    const auto& [receiving, sending] = sides_;
    const double rest = least_ms(sending, change);
    double ms = compute_ms_after(change);
    if (ms + rest + least_ms(receiving, change) >= limit) return limit;
    ms += ms_after(receiving, change);
    if (ms + rest >= limit) return limit;
    return ms + ms_after(sending, change);
  }
  void carry_out(const Change& change) {
    const std::size_t from = home(layer_, change.x);
    move(change.x, from, change.to);
    if (change.y) move(*change.y, change.to, from);
    for (const Side& side : sides_)
      if (side.exchange != nullptr) refresh(*side.exchange);
  }
  // Ranks that something has to leave for layer_ms to fall.
  std::vector<std::size_t> critical_ranks() const {
    const auto worst = [](const std::vector<double>& of_ranks) {
      return static_cast<std::size_t>(std::ranges::max_element(of_ranks) - of_ranks.begin());
    };
    std::vector<std::size_t> ranks{worst(compute_ms(layer_))};
    for (const Side& side : sides_) {
      if (side.exchange == nullptr) continue;
      ranks.push_back(worst(side.lines().out));
      if (dispatch_) ranks.push_back(worst(side.lines().back));
    }
    return ranks;
  }

 private:
  struct Lines {  // [P] ms of the slowest pair of a row or column, out and back
    std::vector<double> out;
    std::vector<double> back;
  };
  struct Exchange {
    RankTraffic traffic;
    Lines senders = {};
    Lines receivers = {};
    double ms() const { return std::ranges::max(senders.out) + std::ranges::max(senders.back); }
  };
  // An exchange of the layer entered, which its experts receive from or send to; null: there is none.
  struct Side {
    Exchange* exchange = nullptr;
    std::vector<double> flows = {};  // [E, P] between an expert and ranks at the other end
    bool receives = true;

    const Lines& lines() const { return receives ? exchange->receivers : exchange->senders; }
  };

  std::size_t home(std::size_t layer, std::size_t expert) const {
    return static_cast<std::size_t>(homes_[layer][expert]);
  }
  // The pair of a rank of the layer's experts and one at the other end.
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
      const std::size_t rank = home(layer_ - 1, from);
      for (std::size_t e = 0; e < num_experts_; ++e)
        in.flows[e * num_ranks_ + rank] += static_cast<double>(counts[e]);
    }
    for (std::size_t e = 0; e < num_experts_ && out.exchange != nullptr; ++e) {
      const std::int64_t* counts = &problem_.profile.transitions(LayerId(layer_))[e * num_experts_];
      for (std::size_t to = 0; to < num_experts_; ++to)
        out.flows[e * num_ranks_ + home(layer_ + 1, to)] += static_cast<double>(counts[to]);
    }
  }

  // Of each rank.
  std::vector<double> compute_ms(std::size_t layer) const {
    std::vector<double> ms = load_[layer];
    for (std::size_t rank = 0; rank < num_ranks_; ++rank) ms[rank] *= compute_each_[rank];
    return ms;
  }

  double compute_ms_after(const Change& change) const {
    const auto loads = problem_.profile.loads(LayerId(layer_));
    const std::size_t a = home(layer_, change.x);
    const double moved =
        static_cast<double>(loads[change.x]) - (change.y ? static_cast<double>(loads[*change.y]) : 0.0);
    double slowest = 0;
    for (std::size_t rank = 0; rank < num_ranks_; ++rank) {
      const double load = load_[layer_][rank] - (rank == a ? moved : 0) + (rank == change.to ? moved : 0);
      slowest = std::max(slowest, load * compute_each_[rank]);
    }
    return slowest;
  }

  // Of the pairs that the change does not touch, out alone.
  double least_ms(const Side& side, const Change& change) const {
    if (side.exchange == nullptr) return 0;
    const std::size_t a = home(layer_, change.x);
    double largest = 0;
    for (std::size_t rank = 0; rank < num_ranks_; ++rank)
      if (rank != a && rank != change.to) largest = std::max(largest, side.lines().out[rank]);
    return largest;
  }

  double ms_after(const Side& side, const Change& change) const {
    if (side.exchange == nullptr) return 0;
    const std::vector<double>& traffic = side.exchange->traffic;
    const std::size_t a = home(layer_, change.x);
    const std::size_t b = change.to;
    double out = 0;
    double back = 0;
    for (std::size_t rank = 0; rank < num_ranks_; ++rank) {
      const double moved = side.flows[change.x * num_ranks_ + rank] -
                           (change.y ? side.flows[*change.y * num_ranks_ + rank] : 0);
      const double of_a = traffic[pair(side, a, rank)] - moved;
      const double of_b = traffic[pair(side, b, rank)] + moved;
      out = std::max({out, pair_ms(pair(side, a, rank), of_a), pair_ms(pair(side, b, rank), of_b)});
      if (dispatch_)
        back = std::max({back, pair_ms(pair(side, rank, a), of_a), pair_ms(pair(side, rank, b), of_b)});
      if (rank == a || rank == b) continue;
      out = std::max(out, side.lines().out[rank]);
      back = std::max(back, side.lines().back[rank]);
    }
    return out + back;
  }

  void move(std::size_t expert, std::size_t from, std::size_t to) {
    const auto load = static_cast<double>(problem_.profile.loads(LayerId(layer_))[expert]);
    load_[layer_][from] -= load;
    load_[layer_][to] += load;
    for (Side& side : sides_)
      for (std::size_t rank = 0; rank < num_ranks_ && side.exchange != nullptr; ++rank) {
        side.exchange->traffic[pair(side, from, rank)] -= side.flows[expert * num_ranks_ + rank];
        side.exchange->traffic[pair(side, to, rank)] += side.flows[expert * num_ranks_ + rank];
      }
    homes_[layer_][expert] = static_cast<int>(to);
  }

  const PlacementProblem& problem_;
  std::size_t num_experts_, num_ranks_;
  bool dispatch_;
  Homes homes_;
  std::vector<double> latency_ms_;         // [P, P]
  std::vector<double> assignment_ms_;      // [P, P] one assignment sent; 0 from a rank to itself
  std::vector<double> compute_each_;       // [P] ms of one assignment
  std::vector<std::vector<double>> load_;  // [L][P]
  std::vector<Exchange> exchanges_;
  std::size_t layer_ = 0;
  std::array<Side, 2> sides_;  // received and sent
};

}  // namespace evenkeel::internal
