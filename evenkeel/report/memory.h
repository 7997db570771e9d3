// The result of `evenkeel memory`: what a device holds while a model trains, whether it fits, and with how
// many chunks; or layouts of so many devices.
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
  std::string device_name = {};         // a preset's, or empty
  std::int64_t ratio_thousandths = 0;   // alpha
  std::string_view cross_entropy = {};  // as the option has it
  std::string pipeline_layout = {};     // as the option has it
  bool paper = false;                   // the table names the paper's rows and equations
  Fit fit = {};
  std::int64_t longest_sequence = 0;
  std::vector<Advice> advice = {};  // where it does not fit
  // Of the layer's arena, for this shape; null where the layer cannot run it.
  std::optional<std::int64_t> least_budget = {};
  std::optional<ChunkHistory> history = {};
};

// What is not counted of a model, and tensors of no kind: a sentence each.
std::vector<std::string> notes_of(const ModelDescription& model);
// Of a model, which must live as long: what fits, how long a sequence may be, and what would help.
MemoryReport memory_report(const MemoryModel& memory, const DeviceMemory& device, ReceivedRows received);
std::string to_text(const MemoryReport& report);
std::string to_json(const MemoryReport& report);
std::string to_html(const MemoryReport& report, const PageOrigin& origin);
// Throws Infeasible where a stage does not fit: what it takes of what there is, and what would make it fit.
void require_fit(const MemoryReport& report);

// Best first.
struct LayoutsReport {
  std::span<const LayoutFit> layouts;
  std::int64_t devices = 0;
  std::int64_t available_bytes = 0;  // of each
};

std::string to_text(const LayoutsReport& report);
std::string to_json(const LayoutsReport& report);
std::string to_html(const LayoutsReport& report, const PageOrigin& origin);
// Throws Infeasible where no layout fits.
void require_fit(const LayoutsReport& report);

}  // namespace evenkeel
