// Traces in files. Read: safetensors, npz and npy (docs/formats.md#trace); written: the same three.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "evenkeel/io/array_file.h"
#include "evenkeel/routing/trace.h"

namespace evenkeel {

struct TraceOptions {
  // Replaces the number of experts in the file. If neither gives it, open_trace() reads the trace once to
  // find the largest id.
  std::optional<int> num_experts = {};
  // The order of dimensions if it is not [tokens, layers, k]: "tokens,k,layers" or "layers,tokens,k".
  std::string axes = {};
};

// The ids are the array `topk_ids` or `routed_experts`, or the file's only array. Throws ParseError if the
// file is not a trace, InvalidArgument if an option is wrong. Ids are checked when they are read.
std::unique_ptr<TraceReader> open_trace(const ByteSource& source, const TraceOptions& options = {});

// Writes a whole trace, batch by batch. `format` is safetensors, npz, or npy (which holds only the ids).
void write_trace(TraceReader& trace, const std::string& path, FileFormat format = FileFormat::safetensors);

}  // namespace evenkeel
