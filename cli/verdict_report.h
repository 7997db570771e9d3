// A verdict for people and for programs: whether a placement pays against what runs now.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "evenkeel/placement/evaluate/evaluate.h"

namespace evenkeel::cli {

struct VerdictReport {
  std::string placement;
  std::string against;
  Verdict verdict;
  bool of_steps = false;  // of a recording at least
};

// Whether any was judged by step.
bool any_steps(std::span<const RecordingJudgement> judgements);
nlohmann::ordered_json json_of(const VerdictReport& report);
void print_verdict(const VerdictReport& report);

}  // namespace evenkeel::cli
