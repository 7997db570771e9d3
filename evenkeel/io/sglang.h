// SGLang's placement, which `--init-expert-location` loads (docs/formats.md#sglang).
#pragma once

#include <string>

#include "evenkeel/io/byte_source.h"
#include "evenkeel/io/placement_format.h"

namespace evenkeel {

// {"physical_to_logical_map": [hidden layers][physical experts]}, and no other key: SGLang passes every key
// on. A dense layer has the row that SGLang itself would give it.
void write_sglang_placement(const Placement& placement, const PlacementFormatOptions& options,
                            const std::string& path);
// The same map in JSON, or in a dictionary of torch.save (.pt). Needs options.num_ranks; takes the rows of
// options.layers, or all.
PlacementFile read_sglang_placement(const ByteSource& source, const PlacementFormatOptions& options);

}  // namespace evenkeel
