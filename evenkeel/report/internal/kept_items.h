// The items and sentences that the text, the JSON and the page of `evenkeel memory` have in common.
#pragma once

#include <string>
#include <vector>

#include "evenkeel/report/memory.h"

namespace evenkeel::internal {

// Of a stage: the model's, or what was measured.
inline std::vector<StaticItem> static_items(const MemoryReport& report, const StageFit& stage) {
  if (!report.device.static_bytes) return report.memory.static_items(stage.stage);
  return {{.name = "given", .weight_bytes = *report.device.static_bytes}};
}

// Whether it fits, and what of how much it takes.
std::string verdict_of(const MemoryReport& report);
// What would make it fit, each as something to type.
std::vector<std::string> advice_of(const MemoryReport& report);

// Whether it changes how the devices are laid out.
inline bool is_of_devices(const Advice& advice) {
  using Change = Advice::Change;
  return advice.change >= Change::tensor && advice.change <= Change::devices;
}

}  // namespace evenkeel::internal
