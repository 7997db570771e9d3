// The results of `evenkeel memory --gpus`, for people and for programs: layouts of so many devices, best
// first.
#pragma once

#include <span>

#include "evenkeel/training_memory/layout_search.h"

namespace evenkeel::cli {

struct LayoutsReport {
  std::span<const LayoutFit> layouts;
  std::int64_t devices = 0;
  std::int64_t available_bytes = 0;  // of each
};

// Throws Infeasible where no layout fits.
void require_fit(const LayoutsReport& report);

void print_json(const LayoutsReport& report);
void print_table(const LayoutsReport& report);

}  // namespace evenkeel::cli
