// Traces in files. Read: safetensors, npz and npy (docs/formats.md#trace); written: the same three.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "evenkeel/io/array_file.h"
#include "evenkeel/routing/trace.h"

namespace evenkeel {

struct TraceOptions {
  // Instead of what the file says. Where neither says it, open_trace() reads the trace once to find the
  // largest id.
  std::optional<int> num_experts = {};
  // The order of the dimensions, where it is not [tokens, layers, k]: "tokens,k,layers", "layers,tokens,k".
  std::string axes = {};
};

// The ids are the array `topk_ids` or `routed_experts`, else the only one there is. Throws ParseError if the
// file is not a trace, InvalidArgument if an option is wrong. Ids are checked as
// they are read.
std::unique_ptr<TraceReader> open_trace(const ByteSource& source, const TraceOptions& options = {});

// Writes a whole trace, a batch at a time. `format` is safetensors, npz, or npy (which holds the ids alone).
void write_trace(TraceReader& trace, const std::string& path, FileFormat format = FileFormat::safetensors);

}  // namespace evenkeel
