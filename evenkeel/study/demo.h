// Measures what balancing and placing gain on the trace and trained layer that come with the project, for
// mixed text and for text of one domain. Also measures the same steps in half the memory.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "evenkeel/cost/machine.h"
#include "evenkeel/study/accuracy.h"
#include "evenkeel/study/study_setup.h"

namespace evenkeel {

struct DemoSetup {
  std::string data = "data/tiny-moe";  // path of a folder
  int ranks = 8;
  int rounds = 21;
  std::optional<Machine> cost = std::nullopt;  // measured if not given
};

// Results for one kind of text.
struct DemoText {
  std::string name;
  CheckedFigures contiguous;  // ep, least-loaded and level
  // Planner level, with homes chosen from other sequences of the same text. The two numbers after it are
  // max/mean load, averaged over all layers, with contiguous and with chosen homes.
  CheckedFigures placed;
  double contiguous_max_over_mean = 0;
  double placed_max_over_mean = 0;
};

struct Demo {
  std::string trace;
  int layer = 0;
  ExperimentSetup setup;  // set-up of the first measurement
  std::vector<DemoText> texts;
  // ep and level on the last text, with half of ep's peak on that text as the budget.
  Budget budget;
  CheckedFigures budgeted;
};

Demo measure_demo(const DemoSetup& setup, const NamedProgress& progress);

}  // namespace evenkeel
