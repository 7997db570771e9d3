// Where results are held until they are summed.
//
// Problem    A token's sum needs all its k results at once, so that its order does not depend on the plan.
//            Holding them takes k rows per token. If the plan leaves rows on their ranks, most of these
//            results come from a hot expert for the rank's own tokens, and need not wait for other ranks.
// Method     The results of split experts for the rank's own tokens are not held with the others. They are
//            computed and summed for one range of tokens at a time, once all other results have arrived.
// Cost       O(log runs) per query, O(runs log^2 tokens) per range.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/exchange/dispatched.h"

namespace evenkeel {

// Positions of one expert that this rank computes for its own tokens, in the order of the tokens.
struct LocalRun {
  std::int32_t group = 0;  // index in Dispatched::groups()
  // The first row of the current range's results.
  std::int32_t range_row = 0;
  std::int64_t begin = 0;  // first position
  std::int64_t end = 0;
  std::int64_t slot = 0;  // output_row of the first position; the others follow
  // The part that belongs to the current range.
  std::int64_t range_begin = 0;
  std::int64_t range_end = 0;
};

class ResultRows {
 public:
  // Allocates what chunks with `num_experts` experts need, whatever their routing.
  void reserve(std::size_t num_experts);
  // Starts a chunk; `dispatched` must outlive its use. In every group with a nonzero `in_ranges` (by expert),
  // this rank's own positions form a run; an empty `in_ranges` makes no runs. Reuses its memory.
  void open(const Dispatched& dispatched, RankId me, std::span<const std::uint8_t> in_ranges);
  std::span<const LocalRun> runs() const { return runs_; }
  std::int64_t positions_in_runs() const { return before_.back(); }
  // Sets how many positions in runs one range of tokens may have: at least k, or all if fewer than k exist.
  void set_rows_per_range(std::int64_t positions);
  // The number of rows: held results computed here, then those from elsewhere, then the rows of one range.
  std::int64_t rows() const;
  // Writes the rows of held results, by position. next_range() writes those of positions in runs.
  void fill(std::span<std::int32_t> row_of_position) const;

  // Moves to the next range of tokens and updates runs(); false if no tokens are left.
  bool next_range(std::span<std::int32_t> row_of_position);
  std::int64_t first_token() const { return first_token_; }
  std::int64_t end_token() const { return end_token_; }

  // The row of a result_slot(). A slot in a run must belong to the current range.
  std::int64_t row(std::int64_t slot) const;
  // row() for a slot in no run, or for one past the end.
  std::int64_t held_row(std::int64_t slot) const;

 private:
  std::int64_t token(std::int64_t position) const;
  std::int64_t end_before(const LocalRun& run, std::int64_t token) const;
  std::int64_t positions_before(std::int64_t token) const;

  const Dispatched* dispatched_ = nullptr;
  std::vector<LocalRun> runs_;        // sorted by slot
  std::vector<std::int64_t> before_;  // positions in the runs before each run; the last is the total
  std::int64_t rows_per_range_ = 0;
  std::int64_t first_token_ = 0;
  std::int64_t end_token_ = 0;
};

}  // namespace evenkeel
