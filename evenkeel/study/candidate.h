// The ways to carry out a layer's steps that are compared: each a planner, and the memory that it may take.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/balance/planner.h"
#include "evenkeel/budget/memory_options.h"
#include "evenkeel/device/arena.h"

namespace evenkeel {

// The memory that a layer may take, and how it makes do with that.
struct Budget {
  std::int64_t bytes = Arena::kNoBudget;  // of each rank's arena
  MemoryOptions memory;

  bool is_given() const { return bytes != Arena::kNoBudget; }
  // Whether steps may be cut or computed again at all.
  bool cuts() const;

  friend bool operator==(const Budget&, const Budget&) = default;
};

// As options say them: "auto"; "exact", "mact" or a number.
std::string_view name_of(Recompute recompute);
std::string name_of(const ChunkRule& rule);

// A budget as it is asked for: in bytes, or as a share of what plain ep takes.
struct AskedBudget {
  std::int64_t bytes = 0;
  std::int64_t share_thousandths_of_percent = 0;  // 0: bytes are given

  // At least a byte.
  std::int64_t bytes_of(std::int64_t whole) const;
};

struct Candidate {
  PlannerOptions planner;
  Budget budget;

  bool is_plain() const { return planner.kind == PlannerOptions::Kind::ep; }
};

// Plain ep, which others are measured against.
Candidate plain_ep(const Budget& budget = {});
// Each planner under one budget.
std::vector<Candidate> candidates_of(const std::vector<PlannerOptions>& planners, const Budget& budget);

}  // namespace evenkeel
