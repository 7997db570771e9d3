// The options of `evenkeel memory`.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/training_memory/fit.h"
#include "evenkeel/training_memory/names.h"

namespace evenkeel::cli {

struct MemoryArguments {
  std::string model;
  std::string counts;
  std::string steps;
  MemorySetup setup;
  std::int64_t device_bytes = 80'000'000'000;
  std::string device;  // a preset's name
  std::int64_t ratio_thousandths = 900;
  std::optional<std::int64_t> static_bytes;
  ReceivedRows received;
  bool even = false;  // --received even
  std::vector<std::int64_t> bins = {1, 2, 4, 8};
  std::vector<std::string> with;  // terms by name, or all
  std::vector<std::string> without;
  bool paper = false;
  std::vector<std::string> degrees;  // named by --parallel
  std::optional<std::int64_t> gpus;
  CrossEntropy cross_entropy = CrossEntropy::plain;
  enum class Attention { fused, unfused };
  Attention attention = Attention::fused;
  std::string pipeline_layout;
  bool bytes_given = false;              // --bytes names activation
  bool static_bytes_given = false;       // --bytes names anything but activation
  std::vector<std::string> bytes_named;  // all that --bytes names
  std::int64_t cache_bytes = 0;          // per number in a served model's cache; 0: not given
  bool require_fit = false;
  std::string html;
  bool json = false;
};

void add_setup(CLI::App& app, MemoryArguments& options);
void add_device(CLI::App& app, MemoryArguments& options);

// Memory of --device or --device-memory, times --available-ratio. Throws InvalidArgument.
std::int64_t available_bytes(const CLI::App& app, const MemoryArguments& options);
// The terms to count; call it once all options are parsed.
ExtraTerms counted_terms(const CLI::App& app, const MemoryArguments& options);

}  // namespace evenkeel::cli
