// Routing for `evenkeel place`: profiles, counts, other systems' recordings, or traces that are profiled on
// the fly.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "evenkeel/io/routing_file.h"
#include "evenkeel/placement/evaluate/evaluate.h"

namespace evenkeel::cli {

struct PlaceInputs {
  std::vector<std::string> names;          // of the files, or of the steps of one
  std::vector<RoutingProfile> files;       // their profiles, unless it is steps that are to be level
  std::vector<Recording> recordings = {};  // what the placement is judged on, by loads alone
  SourceCounts sources = {};               // of all together, where all are traces

  std::span<const RoutingProfile> profiles() const {
    return files.empty() ? recordings.front().steps : files;
  }
  const RoutingProfile& first() const { return profiles().front(); }
  // Of the first that knows them.
  LayerNumbers layers() const;
  std::int64_t num_assignments() const;
};

// Of several files, whose notes are said. Without transitions the ranks of a trace's tokens are counted
// instead. Throws ParseError; InvalidArgument, naming two files, where they are of other layers or experts.
PlaceInputs read_inputs(const std::vector<std::string>& paths, const RoutingOptions& options, int num_ranks);
// Every step of one file; of a trace, windows of so many tokens. Throws InvalidArgument where it has no
// steps.
PlaceInputs read_steps(const std::string& path, RoutingOptions options,
                       std::optional<std::int64_t> step_tokens);
// Other files to judge on, of some of the layers of what is placed. What options say of layers is for files
// that do not say their own.
std::vector<Recording> read_judges(const std::vector<std::string>& paths, RoutingOptions options,
                                   const PlaceInputs& placed);

}  // namespace evenkeel::cli
