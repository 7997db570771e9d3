// The candidates that are compared for running a layer's steps. Each is a planner and a memory budget.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/balance/planner.h"
#include "evenkeel/budget/memory_options.h"
#include "evenkeel/device/arena.h"

namespace evenkeel {

// The memory that a layer may use, and the options for staying within it.
struct Budget {
  std::int64_t bytes = Arena::kNoBudget;  // of each rank's arena
  MemoryOptions memory;

  bool is_given() const { return bytes != Arena::kNoBudget; }
  // True if steps may be cut into chunks or recomputed.
  bool cuts() const;

  friend bool operator==(const Budget&, const Budget&) = default;
};

// The words that options use: Recompute as "auto" and the like; ChunkRule as "exact", "mact" or a number.
std::string_view name_of(Recompute recompute);
std::string name_of(const ChunkRule& rule);

// A requested budget: in bytes, or as a share of the bytes that plain ep takes.
struct RequestedBudget {
  std::int64_t bytes = 0;
  std::int64_t share_thousandths_of_percent = 0;  // 0: use `bytes`

  // The budget in bytes, at least 1. `whole` is the bytes that plain ep takes.
  std::int64_t bytes_of(std::int64_t whole) const;
};

struct Candidate {
  PlannerOptions planner;
  Budget budget;

  bool is_plain() const { return planner.kind == PlannerOptions::Kind::ep; }
};

// Plain ep, which usually is the reference.
Candidate plain_ep(const Budget& budget = {});
// One candidate for each planner, all with this budget.
std::vector<Candidate> candidates_of(const std::vector<PlannerOptions>& planners, const Budget& budget);

}  // namespace evenkeel
