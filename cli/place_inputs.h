// Routing for `evenkeel place`: what is to be level, and what the placement is judged on.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "evenkeel/io/recordings.h"
#include "evenkeel/placement/problem.h"

namespace evenkeel::cli {

struct PlaceInputs {
  std::vector<std::string> names;           // of the files, or of the steps of one
  std::vector<RoutingProfile> files;        // their profiles, unless it is steps that are to be level
  std::vector<RecordedRouting> recordings;  // what the placement is judged on, by loads alone
  SourceCounts sources;                     // of all together, where all are traces

  std::span<const RoutingProfile> profiles() const {
    return files.empty() ? recordings.front().steps : files;
  }
  const RoutingProfile& first() const { return profiles().front(); }
  // Of the first that knows them.
  LayerNumbers layers() const;
  std::int64_t num_assignments() const;
};

// Notes are said. Without transitions the ranks of a trace's tokens are counted instead. Both throw
// ParseError and InvalidArgument.
PlaceInputs read_files(const std::vector<std::string>& paths, const RoutingOptions& options, int num_ranks);
PlaceInputs read_file_of_steps(const std::string& path, const RoutingOptions& options,
                               std::optional<std::int64_t> step_tokens);
// Other files, of some of the layers of what is placed.
std::vector<RecordedRouting> read_judges(const std::vector<std::string>& paths, RoutingOptions options,
                                         const PlaceInputs& placed);

}  // namespace evenkeel::cli
