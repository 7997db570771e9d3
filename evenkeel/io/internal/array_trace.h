// A trace whose ids, and weights if it has any, are arrays [tokens, layers, k].
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "evenkeel/io/array_file.h"
#include "evenkeel/io/trace_file.h"
#include "evenkeel/routing/trace.h"

namespace evenkeel::internal {

// Puts [tokens, layers, k], or [tokens, k] of one layer, into `info`. Throws ParseError for any other shape.
void take_ids_shape(const std::vector<std::int64_t>& shape, const std::string& file, const std::string& key,
                    TraceInfo& info);

// The largest number of an unsigned type, also where it was copied to a wider one: with those, programs fill
// places without an expert.
bool is_filler(std::int64_t id);

// How far ids are believed: `as_written` are our own; `literal` ones may repeat within a token; `recorded`
// ones came from a router, which never chooses one expert k times.
enum class IdsAre { as_written, literal, recorded };

// Unless ids are as written, layers that hold one id throughout are left out as dense ones, and fillers that
// cannot be experts are no_expert. In recorded ids, rows of one id k times are no choice. The notes of the
// trace say what was done.
//
// `info` is of the arrays as they are. The trace has `num_experts` experts, else as many as info says, else
// the largest id plus one. Reads the ids once, unless they are as written and their experts are known. Throws
// InvalidArgument where a filler may be an expert or not and nobody says how many there are, and where
// recorded ids repeat as no router's do; ParseError where no row is a choice.
std::unique_ptr<TraceReader> open_array_trace(TraceInfo info, std::unique_ptr<ArrayReader> ids,
                                              std::unique_ptr<ArrayReader> weights, IdsAre ids_are,
                                              std::optional<int> num_experts);

// The trace of an array of a file, with what the file says of it besides (trace_file.cpp).
std::unique_ptr<TraceReader> open_trace_in(const ArrayFile& file, const ArrayInfo& ids,
                                           const TraceOptions& options);

// The rows of a trace of all hidden layers that are these layers.
std::unique_ptr<TraceReader> layers_of_trace(std::unique_ptr<TraceReader> all, const LayerNumbers& layers);

}  // namespace evenkeel::internal
