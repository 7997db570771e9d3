// The results of `evenkeel memory`, for people and for programs.
#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/memory_history.h"
#include "evenkeel/training_memory/advice.h"
#include "evenkeel/training_memory/fit.h"

namespace evenkeel::cli {

struct MemoryReport {
  const MemoryModel& memory;
  const DeviceMemory& device;
  ReceivedRows given_received;
  std::int64_t device_bytes = 0;       // M_GPU
  std::string device_name;             // a preset's, or empty
  std::int64_t ratio_thousandths = 0;  // alpha
  std::string_view cross_entropy;      // as the option has it
  std::vector<std::string> terms;      // beyond the paper's
  bool paper = false;                  // the table names the paper's rows and equations
  Fit fit;
  std::int64_t longest_sequence = 0;
  std::vector<Advice> advice;  // where it does not fit
  // Of the layer's arena, for this shape; null where the layer cannot run it.
  std::optional<std::int64_t> least_budget;
  std::optional<ChunkHistory> history;
  std::int64_t first_step = 0;
};

// As --parallel names them.
inline constexpr std::array<std::pair<std::string_view, std::int64_t Parallelism::*>, 7> degree_names = {
    {{"tp", &Parallelism::tensor},
     {"pp", &Parallelism::pipeline},
     {"ep", &Parallelism::expert},
     {"dp", &Parallelism::data},
     {"vp", &Parallelism::virtual_stages},
     {"cp", &Parallelism::context},
     {"etp", &Parallelism::expert_tensor}}};
// As --parallel takes it, without what is 1.
std::string degrees_text(const Parallelism& parallel);
nlohmann::ordered_json json_of_degrees(const Parallelism& parallel);

// Throws Infeasible where a stage does not fit: what it takes of what there is, and what would make it fit.
void require_fit(const MemoryReport& report);

// "1 device", "2 devices".
std::string counted(std::int64_t number, const char* one, const char* many);

void print_json(const MemoryReport& report);
void print_table(const MemoryReport& report);

}  // namespace evenkeel::cli
