// Reports `evenkeel memory`: what a device holds while a model trains, whether it fits, and with how many
// chunks. Or the possible layouts on a given number of devices.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/report/html.h"
#include "evenkeel/training_memory/advice.h"
#include "evenkeel/training_memory/fit.h"
#include "evenkeel/training_memory/history.h"
#include "evenkeel/training_memory/layout_search.h"

namespace evenkeel {

struct MemoryReport {
  const MemoryModel& memory;
  const DeviceMemory& device;
  ReceivedRows given_received = {};
  std::int64_t device_bytes = 0;        // M_GPU
  std::string device_name = {};         // name of a preset; empty if none
  std::int64_t ratio_thousandths = 0;   // alpha
  std::string_view cross_entropy = {};  // as given in the option
  std::string pipeline_layout = {};     // as given in the option
  bool paper = false;                   // the table names the paper's rows and equations
  Fit fit = {};
  std::int64_t longest_sequence = 0;
  std::vector<Advice> advice = {};  // only if the model does not fit
  // The least budget of the layer's arena for this shape; empty if the layer cannot run the shape.
  std::optional<std::int64_t> least_budget = {};
  std::optional<ChunkHistory> history = {};
};

// The parts of a model that are not counted, and its tensors of unknown kinds; one sentence each.
std::vector<std::string> notes_of(const ModelDescription& model);
// Finds whether the model fits, how long a sequence may be, and which changes would help. `memory` must
// outlive the result.
MemoryReport memory_report(const MemoryModel& memory, const DeviceMemory& device, ReceivedRows received);
std::string to_text(const MemoryReport& report);
std::string to_json(const MemoryReport& report);
std::string to_html(const MemoryReport& report, const PageOrigin& origin);
// Throws Infeasible if a stage does not fit. The error has the stage's bytes, the available bytes and changes
// that would make it fit.
void require_fit(const MemoryReport& report);

// Layouts, best first.
struct LayoutsReport {
  std::span<const LayoutFit> layouts;
  std::int64_t devices = 0;
  std::int64_t available_bytes = 0;  // per device
};

std::string to_text(const LayoutsReport& report);
std::string to_json(const LayoutsReport& report);
std::string to_html(const LayoutsReport& report, const PageOrigin& origin);
// Throws Infeasible if no layout fits.
void require_fit(const LayoutsReport& report);

}  // namespace evenkeel
