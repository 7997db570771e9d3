// Load statistics that vLLM writes as JSON lines, `eplb_load_stats` records (docs/formats.md#vllm).
#pragma once

#include "evenkeel/io/byte_source.h"
#include "evenkeel/io/routing_file.h"

namespace evenkeel {

// Which records a file of JSON lines has; one file may have both.
struct VllmRecords {
  bool placement = false;   // eplb_initial_mapping
  bool statistics = false;  // eplb_load_stats
};
VllmRecords find_vllm_records(const ByteSource& source);

// The counts of physical experts, added to the experts that the record's own map says they were, over all
// records; those of other types are left out. A record is a step: vLLM writes one after each, with the loads
// of all ranks, and its numbers begin anew whenever it rearranges experts. vLLM counts MoE layers alone, and
// does not say their numbers. Throws ParseError: no such record, counts and map of different shapes, records
// of different models.
RoutingFile open_vllm_statistics(const ByteSource& source, const RoutingOptions& options = {});

}  // namespace evenkeel
