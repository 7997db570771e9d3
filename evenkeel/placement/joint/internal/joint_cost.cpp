#include "evenkeel/placement/joint/internal/joint_cost.h"

#include <algorithm>
#include <utility>

namespace evenkeel::internal {

JointCost::JointCost(const PlacementProblem& problem, Homes homes)
    : problem_(problem),
      num_layers_(static_cast<std::size_t>(problem.profile.num_layers())),
      num_experts_(static_cast<std::size_t>(problem.profile.num_experts())),
      num_ranks_(static_cast<std::size_t>(problem.topology.num_ranks())),
      dispatch_(problem.traffic == TrafficModel::dispatch_combine),
      homes_(std::move(homes)),
      exchanges_(dispatch_ ? num_layers_ : num_layers_ - 1) {
  for (RankId from : indices<RankId>(num_ranks_)) {
    compute_each_.push_back(problem.cost.assignment_us * 1e-3 / problem.topology.speed(from));
    for (RankId to : indices<RankId>(num_ranks_)) {
      const Link link = from == to ? Link{} : problem.topology.link(from, to);
      latency_ms_.push_back(from == to ? 0 : link.latency_us * 1e-3);
      assignment_ms_.push_back(from == to ? 0 : problem.cost.assignment_bytes / (link.gigabytes_per_s * 1e6));
    }
  }
  for (std::size_t layer = 0; layer < num_layers_; ++layer) {
    load_.emplace_back(num_ranks_, 0.0);
    const auto loads = problem.profile.loads(LayerId(layer));
    for (std::size_t e = 0; e < num_experts_; ++e)
      load_.back()[home(layer, e)] += static_cast<double>(loads[e]);
  }
  for (std::size_t exchange = 0; exchange < exchanges_.size(); ++exchange) add_traffic(exchange);
}

void JointCost::add_traffic(std::size_t exchange) {
  std::vector<double>& traffic = exchanges_[exchange].traffic;
  traffic.assign(num_ranks_ * num_ranks_, 0.0);
  if (dispatch_) {
    for (std::size_t source = 0; source < num_ranks_; ++source)
      for (std::size_t e = 0; e < num_experts_; ++e)
        traffic[source * num_ranks_ + home(exchange, e)] +=
            problem_.sources.at(LayerId(exchange), RankId(source), ExpertId(e));
  } else {
    const auto counts = problem_.profile.transitions(LayerId(exchange));
    for (std::size_t from = 0; from < num_experts_; ++from)
      for (std::size_t to = 0; to < num_experts_; ++to)
        traffic[home(exchange, from) * num_ranks_ + home(exchange + 1, to)] +=
            static_cast<double>(counts[from * num_experts_ + to]);
  }
  refresh(exchanges_[exchange]);
}

double JointCost::out_ms(std::size_t from, std::size_t to, double traffic) const {
  return latency_ms_[from * num_ranks_ + to] + traffic * assignment_ms_[from * num_ranks_ + to];
}

double JointCost::back_ms(std::size_t from, std::size_t to, double traffic) const {
  return dispatch_ ? out_ms(to, from, traffic) : 0;
}

void JointCost::refresh(Exchange& exchange) const {
  for (auto* line :
       {&exchange.senders, &exchange.senders_back, &exchange.receivers, &exchange.receivers_back})
    line->assign(num_ranks_, 0.0);
  for (std::size_t from = 0; from < num_ranks_; ++from)
    for (std::size_t to = 0; to < num_ranks_; ++to) {
      const double out = out_ms(from, to, exchange.traffic[from * num_ranks_ + to]);
      const double back = back_ms(from, to, exchange.traffic[from * num_ranks_ + to]);
      exchange.senders[from] = std::max(exchange.senders[from], out);
      exchange.receivers[to] = std::max(exchange.receivers[to], out);
      exchange.senders_back[from] = std::max(exchange.senders_back[from], back);
      exchange.receivers_back[to] = std::max(exchange.receivers_back[to], back);
    }
  exchange.out_ms = std::ranges::max(exchange.senders);
  exchange.back_ms = std::ranges::max(exchange.senders_back);
}

double JointCost::compute_ms(std::size_t layer) const {
  double slowest = 0;
  for (std::size_t rank = 0; rank < num_ranks_; ++rank)
    slowest = std::max(slowest, load_[layer][rank] * compute_each_[rank]);
  return slowest;
}

double JointCost::ms() const {
  double sum = 0;
  for (std::size_t layer = 0; layer < num_layers_; ++layer) sum += compute_ms(layer);
  for (const Exchange& exchange : exchanges_) sum += exchange.ms();
  return sum;
}

std::optional<std::size_t> JointCost::receiving_exchange() const {
  if (dispatch_) return layer_;
  if (layer_ == 0) return std::nullopt;
  return layer_ - 1;
}

std::optional<std::size_t> JointCost::sending_exchange() const {
  if (dispatch_ || layer_ + 1 == num_layers_) return std::nullopt;
  return layer_;
}

void JointCost::enter(std::size_t layer) {
  layer_ = layer;
  fill_flows();
}

void JointCost::fill_flows() {
  in_.assign(num_experts_ * num_ranks_, 0.0);
  out_.assign(num_experts_ * num_ranks_, 0.0);
  if (dispatch_) {
    for (std::size_t source = 0; source < num_ranks_; ++source)
      for (std::size_t e = 0; e < num_experts_; ++e)
        in_[e * num_ranks_ + source] = problem_.sources.at(LayerId(layer_), RankId(source), ExpertId(e));
    return;
  }
  if (receiving_exchange())
    for (std::size_t from = 0; from < num_experts_; ++from) {
      const std::int64_t* counts = &problem_.profile.transitions(LayerId(layer_ - 1))[from * num_experts_];
      const std::size_t rank = home(layer_ - 1, from);
      for (std::size_t e = 0; e < num_experts_; ++e)
        in_[e * num_ranks_ + rank] += static_cast<double>(counts[e]);
    }
  if (sending_exchange())
    for (std::size_t e = 0; e < num_experts_; ++e) {
      const std::int64_t* counts = &problem_.profile.transitions(LayerId(layer_))[e * num_experts_];
      for (std::size_t to = 0; to < num_experts_; ++to)
        out_[e * num_ranks_ + home(layer_ + 1, to)] += static_cast<double>(counts[to]);
    }
}

double JointCost::layer_ms() const {
  double sum = compute_ms(layer_);
  if (const auto exchange = receiving_exchange()) sum += exchanges_[*exchange].ms();
  if (const auto exchange = sending_exchange()) sum += exchanges_[*exchange].ms();
  return sum;
}

// The cost on ranks that the change does not touch is a lower bound, and most changes fail at it.
double JointCost::layer_ms_after(const Change& change, double limit) const {
  const std::size_t a = home(layer_, change.x);
  const auto receiving = receiving_exchange();
  const auto sending = sending_exchange();
  double rest = 0;
  if (sending) rest = largest_without(exchanges_[*sending].senders, a, change.to);
  double ms = compute_ms_after(change);
  if (receiving && ms + rest + largest_without(exchanges_[*receiving].receivers, a, change.to) >= limit)
    return limit;
  ms += receiving_ms_after(change);
  if (ms + rest >= limit) return limit;
  return ms + sending_ms_after(change);
}

double JointCost::largest_without(const std::vector<double>& of_ranks, std::size_t a, std::size_t b) {
  double largest = 0;
  for (std::size_t rank = 0; rank < of_ranks.size(); ++rank)
    if (rank != a && rank != b) largest = std::max(largest, of_ranks[rank]);
  return largest;
}

double JointCost::compute_ms_after(const Change& change) const {
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

double JointCost::receiving_ms_after(const Change& change) const {
  const auto at = receiving_exchange();
  if (!at) return 0;
  const Exchange& exchange = exchanges_[*at];
  const std::size_t a = home(layer_, change.x);
  const std::size_t b = change.to;
  double out = 0;
  double back = 0;
  for (std::size_t rank = 0; rank < num_ranks_; ++rank) {
    const double moved =
        in_[change.x * num_ranks_ + rank] - (change.y ? in_[*change.y * num_ranks_ + rank] : 0);
    const double to_a = exchange.traffic[rank * num_ranks_ + a] - moved;
    const double to_b = exchange.traffic[rank * num_ranks_ + b] + moved;
    out = std::max({out, out_ms(rank, a, to_a), out_ms(rank, b, to_b)});
    if (dispatch_) back = std::max({back, back_ms(rank, a, to_a), back_ms(rank, b, to_b)});
    if (rank == a || rank == b) continue;
    out = std::max(out, exchange.receivers[rank]);
    back = std::max(back, exchange.receivers_back[rank]);
  }
  return out + back;
}

double JointCost::sending_ms_after(const Change& change) const {
  const auto at = sending_exchange();
  if (!at) return 0;
  const Exchange& exchange = exchanges_[*at];
  const std::size_t a = home(layer_, change.x);
  const std::size_t b = change.to;
  double out = 0;
  for (std::size_t rank = 0; rank < num_ranks_; ++rank) {
    const double moved =
        out_[change.x * num_ranks_ + rank] - (change.y ? out_[*change.y * num_ranks_ + rank] : 0);
    out = std::max({out, out_ms(a, rank, exchange.traffic[a * num_ranks_ + rank] - moved),
                    out_ms(b, rank, exchange.traffic[b * num_ranks_ + rank] + moved)});
    if (rank != a && rank != b) out = std::max(out, exchange.senders[rank]);
  }
  return out;
}

void JointCost::carry_out(const Change& change) {
  const auto loads = problem_.profile.loads(LayerId(layer_));
  const auto move = [&](std::size_t expert, std::size_t from, std::size_t to) {
    load_[layer_][from] -= static_cast<double>(loads[expert]);
    load_[layer_][to] += static_cast<double>(loads[expert]);
    for (std::size_t rank = 0; rank < num_ranks_; ++rank) {
      if (const auto exchange = receiving_exchange()) {
        exchanges_[*exchange].traffic[rank * num_ranks_ + from] -= in_[expert * num_ranks_ + rank];
        exchanges_[*exchange].traffic[rank * num_ranks_ + to] += in_[expert * num_ranks_ + rank];
      }
      if (const auto exchange = sending_exchange()) {
        exchanges_[*exchange].traffic[from * num_ranks_ + rank] -= out_[expert * num_ranks_ + rank];
        exchanges_[*exchange].traffic[to * num_ranks_ + rank] += out_[expert * num_ranks_ + rank];
      }
    }
    homes_[layer_][expert] = static_cast<int>(to);
  };
  const std::size_t from = home(layer_, change.x);
  move(change.x, from, change.to);
  if (change.y) move(*change.y, change.to, from);
  if (const auto exchange = receiving_exchange()) refresh(exchanges_[*exchange]);
  if (const auto exchange = sending_exchange()) refresh(exchanges_[*exchange]);
}

std::vector<std::size_t> JointCost::critical_ranks() const {
  const auto worst = [](const std::vector<double>& of_ranks) {
    return static_cast<std::size_t>(std::ranges::max_element(of_ranks) - of_ranks.begin());
  };
  std::vector<double> compute;
  for (std::size_t rank = 0; rank < num_ranks_; ++rank)
    compute.push_back(load_[layer_][rank] * compute_each_[rank]);
  std::vector<std::size_t> ranks{worst(compute)};
  if (const auto exchange = receiving_exchange()) {
    ranks.push_back(worst(exchanges_[*exchange].receivers));
    if (dispatch_) ranks.push_back(worst(exchanges_[*exchange].receivers_back));
  }
  if (const auto exchange = sending_exchange()) ranks.push_back(worst(exchanges_[*exchange].senders));
  std::ranges::sort(ranks);
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

}  // namespace evenkeel::internal
