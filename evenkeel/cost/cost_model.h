// Costs of the parts of a step on a machine, in rates and seconds, as a cost file has them.
#pragma once

namespace evenkeel {

// Costs on one rank, as `evenkeel bench --calibrate` measures them. Rates are in 1..1e30, seconds in 0..1e6:
// predicted times then stay numbers that can be compared.
struct CostModel {
  static constexpr double kLeastRate = 1;
  static constexpr double kMostRate = 1e30;
  static constexpr double kMostSeconds = 1e6;

  double flops_per_second = 1.5e11;         // products of many rows
  double weight_bytes_per_second = 1.0e10;  // products of few rows, which wait for their weights
  double overlap = 0;                       // 0..1: how much of the shorter of both hides behind the longer
  double link_bytes_per_second = 4.0e9;     // weights from rank to rank
  double chunk_seconds = 6.0e-5;            // messages and bookkeeping of a chunk

  friend bool operator==(const CostModel&, const CostModel&) = default;
};

}  // namespace evenkeel
