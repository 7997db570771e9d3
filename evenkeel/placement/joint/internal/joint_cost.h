// Predicted milliseconds of homes, kept up to date while experts of a layer swap ranks.
//
// A layer costs the compute of its slowest rank, assignment_us x load / speed. An exchange costs its slowest
// ordered pair of ranks, latency + assignment_bytes x traffic / bandwidth; under layer_to_layer it lies
// between two layers, under dispatch_combine each layer has one out and one back.
//
// Cost        A change is judged in O(P); entering a layer costs O(E^2), carrying out a change O(P^2).
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "evenkeel/placement/problem.h"

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

  JointCost(const PlacementProblem& problem, Homes homes);

  double ms() const;
  const Homes& homes() const { return homes_; }

  // Changes are of one layer at a time.
  void enter(std::size_t layer);
  double layer_ms() const;  // of what a change in this layer can change
  // Exact where it is below `limit`, else some number that is not.
  double layer_ms_after(const Change& change, double limit) const;
  void carry_out(const Change& change);
  // Ranks that something has to leave for layer_ms to fall.
  std::vector<std::size_t> critical_ranks() const;

 private:
  struct Exchange {
    std::vector<double> traffic;  // [P, P] row by sender
    std::vector<double> senders;  // [P] ms of the slowest pair of a row, out and back
    std::vector<double> senders_back;
    std::vector<double> receivers;  // [P] of a column
    std::vector<double> receivers_back;
    double out_ms = 0;
    double back_ms = 0;
    double ms() const { return out_ms + back_ms; }
  };

  void add_traffic(std::size_t exchange);
  void refresh(Exchange& exchange) const;
  void fill_flows();
  double compute_ms(std::size_t layer) const;
  static double largest_without(const std::vector<double>& of_ranks, std::size_t a, std::size_t b);
  double compute_ms_after(const Change& change) const;
  double receiving_ms_after(const Change& change) const;
  double sending_ms_after(const Change& change) const;
  double out_ms(std::size_t from, std::size_t to, double traffic) const;
  double back_ms(std::size_t from, std::size_t to, double traffic) const;
  std::optional<std::size_t> receiving_exchange() const;
  std::optional<std::size_t> sending_exchange() const;
  std::size_t home(std::size_t layer, std::size_t expert) const {
    return static_cast<std::size_t>(homes_[layer][expert]);
  }

  const PlacementProblem& problem_;
  std::size_t num_layers_, num_experts_, num_ranks_;
  bool dispatch_;
  Homes homes_;
  std::vector<double> latency_ms_;         // [P, P]
  std::vector<double> assignment_ms_;      // [P, P] one assignment sent; 0 from a rank to itself
  std::vector<double> compute_each_;       // [P] ms of one assignment
  std::vector<std::vector<double>> load_;  // [L][P]
  std::vector<Exchange> exchanges_;
  std::size_t layer_ = 0;
  std::vector<double> in_;   // [E, P] of the layer entered: to an expert from ranks
  std::vector<double> out_;  // [E, P] from an expert to ranks
};

}  // namespace evenkeel::internal
