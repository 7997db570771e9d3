// The result of `evenkeel evaluate`: placements judged on recordings, and whether the most level one pays.
#pragma once

#include <span>
#include <string>

#include "evenkeel/placement/evaluate/evaluate.h"

namespace evenkeel {

struct Evaluation {
  std::span<const Recording> recordings;
  std::span<const JudgedPlacement> placements;
  const JudgedPlacement& against;  // what runs now
  int num_ranks = 0;
  Verdict verdict;
};

std::string to_text(const Evaluation& evaluation);
std::string to_json(const Evaluation& evaluation);

}  // namespace evenkeel
