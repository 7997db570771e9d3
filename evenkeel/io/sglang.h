// SGLang's files (docs/formats.md#sglang): the placement that `--init-expert-location` loads, and recordings
// of its expert distribution recorder.
#pragma once

#include <string>
#include <vector>

#include "evenkeel/io/byte_source.h"
#include "evenkeel/io/placement_format.h"
#include "evenkeel/io/routing_file.h"

namespace evenkeel {

// {"physical_to_logical_map": [hidden layers][physical experts]}, and no other key: SGLang passes every key
// on. A dense layer has the row that SGLang itself would give it.
void write_sglang_placement(const Placement& placement, const PlacementFormatOptions& options,
                            const std::string& path);
// The same map in JSON, or in a dictionary of torch.save (.pt). Needs options.num_ranks; takes the rows of
// options.layers, or all.
PlacementFile read_sglang_placement(const ByteSource& source, const PlacementFormatOptions& options);

// A recording (.pt) in any mode: `stat` and `stat_approx` count experts; `per_pass` and `per_token` record
// physical experts, which are mapped by the map in the same file; per_token gives a trace. A tensor alone is
// read as any bare array. Layers without any assignment are dense and left out. Of physical experts
// options.num_experts is how many there are; else as many as the map names. Several files, of ranks or dumps
// of the same model, are added up. A forward pass is a step, of all ranks together.
RoutingFile open_sglang_recording(const std::vector<ByteSource>& files, const RoutingOptions& options = {});

}  // namespace evenkeel
