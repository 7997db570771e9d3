// Where results are held until they are summed.
//
// Problem    A token's sum wants all its k results at once, so that its order does not depend on the plan: k
//            rows a token. Under a plan that leaves rows where they are, most of them are a hot expert's and
//            of the rank's own tokens, and wait for nobody.
// Method     Of the experts that the plan splits, results of the rank's own tokens are not held together with
//            the others, but computed and summed for a range of tokens at a time, when all others are there.
// Cost       O(log runs) a question, O(runs log^2 tokens) a range.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/exchange/dispatched.h"

namespace evenkeel {

// Positions of one expert that this rank computes for its own tokens, in the order of the tokens.
struct OwnRun {
  std::int32_t group = 0;  // among Dispatched::groups()
  // The first row of the present range's results.
  std::int32_t range_row = 0;
  std::int64_t begin = 0;  // positions
  std::int64_t end = 0;
  std::int64_t slot = 0;  // the first one's output_row; the others follow
  // The part that belongs to the present range.
  std::int64_t range_begin = 0;
  std::int64_t range_end = 0;
};

class ResultRows {
 public:
  // Takes the memory that chunks of so many experts want, whatever their routing.
  void reserve(std::size_t num_experts);
  // For a chunk, which must stay: own positions of the groups of which `in_ranges` (by expert) is not 0 are
  // runs; none are where it is empty. Reuses its memory.
  void open(const Dispatched& dispatched, RankId me, std::span<const std::uint8_t> in_ranges);
  std::span<const OwnRun> runs() const { return runs_; }
  std::int64_t positions_in_runs() const { return before_.back(); }
  // Of the positions in runs, so many results are held at a time: at least k, or all if they are fewer.
  void hold_at_once(std::int64_t positions);
  // All rows: of results that wait, here and then from elsewhere, and of one range.
  std::int64_t rows() const;
  // The rows of the results that wait, by position; those of ranges are filled in range by range.
  void fill(std::span<std::int32_t> row_of_position) const;

  // Turns to the next tokens, of which runs() say the positions; false if there are none.
  bool next_range(std::span<std::int32_t> row_of_position);
  std::int64_t first_token() const { return first_token_; }
  std::int64_t end_token() const { return end_token_; }

  // The row of a result_slot(); in a run, only of the present range.
  std::int64_t row(std::int64_t slot) const;
  // As row(), for a slot that is in no run, or for one past the end.
  std::int64_t waiting_row(std::int64_t slot) const;

 private:
  std::int64_t token(std::int64_t position) const;
  std::int64_t end_before(const OwnRun& run, std::int64_t token) const;
  std::int64_t positions_before(std::int64_t token) const;

  const Dispatched* dispatched_ = nullptr;
  std::vector<OwnRun> runs_;          // by slot
  std::vector<std::int64_t> before_;  // positions in the runs before each, and in all
  std::int64_t at_once_ = 0;
  std::int64_t first_token_ = 0;
  std::int64_t end_token_ = 0;
};

}  // namespace evenkeel
