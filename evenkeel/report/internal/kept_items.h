// Items and sentences shared by the text, the JSON and the page of `evenkeel memory`.
#pragma once

#include <string>
#include <vector>

#include "evenkeel/report/memory.h"

namespace evenkeel::internal {

// A stage's static items: those of the model, or the single measured item.
inline std::vector<StaticItem> static_items(const MemoryReport& report, const StageFit& stage) {
  if (!report.device.static_bytes) return report.memory.static_items(stage.stage);
  return {{.name = "given", .weight_bytes = *report.device.static_bytes}};
}

// Whether the model fits, and how many of the available bytes it takes.
std::string verdict_of(const MemoryReport& report);
// Changes that would make the model fit, each as an option to type.
std::vector<std::string> advice_of(const MemoryReport& report);

// True if the advice changes how the model is spread over devices.
inline bool is_of_devices(const Advice& advice) {
  using Change = Advice::Change;
  return advice.change >= Change::tensor && advice.change <= Change::devices;
}

}  // namespace evenkeel::internal
