// What `evenkeel plan` is given: the loads of one step. A profile and a layer of it, or JSON {"loads": [...]}
// by expert, or JSON {"counts": [[...]]} by source rank and expert.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "evenkeel/io/byte_source.h"
#include "evenkeel/plan/counts.h"

namespace evenkeel {

struct LoadsOptions {
  // Needed unless the file says it: in num_ranks, or by counts of each rank. It must then be the same.
  std::optional<int> num_ranks = {};
  // Needed where the file has loads of several layers.
  std::optional<int> layer = {};
};

// Throws ParseError if the file is none of the above, a number is negative or not whole, or the total is
// above 2^63-1; InvalidArgument if an option is missing or does not fit the file.
Counts read_loads(const std::string& path, const LoadsOptions& options);
Counts read_loads(std::shared_ptr<const ByteSource> source, const LoadsOptions& options);

}  // namespace evenkeel
