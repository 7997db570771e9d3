// A trace whose ids, and weights if it has any, are arrays [tokens, layers, k].
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "evenkeel/io/array_file.h"
#include "evenkeel/routing/trace.h"

namespace evenkeel::internal {

// Puts [tokens, layers, k], or [tokens, k] of one layer, into `info`. Throws ParseError for any other shape.
void take_ids_shape(const std::vector<std::int64_t>& shape, const std::string& file, const std::string& key,
                    TraceInfo& info);

// How far ids are believed: `as_written` are our own; `literal` ones may repeat within a token; `recorded`
// ones came from a router, which never chooses one expert k times; `said` ones as well, if their order is
// what somebody said it is.
enum class IdsAre { as_written, literal, recorded, said };

// `info` is of the arrays as they are; what the trace says of itself is what remains after dense layers were
// left out (internal/id_rows.h). Its experts are `num_experts`, else those that info says, else the largest
// id plus one. Reads the ids once, unless they are as written and their experts are known.
std::unique_ptr<TraceReader> open_array_trace(TraceInfo info, std::unique_ptr<ArrayReader> ids,
                                              std::unique_ptr<ArrayReader> weights, IdsAre ids_are,
                                              std::optional<int> num_experts);

// The rows of a trace of all hidden layers that are these layers.
std::unique_ptr<TraceReader> layers_of_trace(std::unique_ptr<TraceReader> all, const LayerNumbers& layers);

}  // namespace evenkeel::internal
