// Traces in arrays [tokens, layers, k] of ids, and of weights if there are any.
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

// Sets the sizes in `info` from a shape [tokens, layers, k], or [tokens, k] for one layer. Throws ParseError
// for any other shape.
void take_ids_shape(const std::vector<std::int64_t>& shape, const std::string& file, const std::string& key,
                    TraceInfo& info);

// Whether the id is the largest number of an 8, 16 or 32 bit unsigned type. Some programs write these numbers
// where there is no expert, and may copy them to a wider type.
bool is_filler(std::int64_t id);

// How ids are checked: `as_written` are our own and are taken as they are; `literal` ids may repeat within a
// token; `recorded` ids came from a router, which never chooses an expert twice.
enum class IdsAre { as_written, literal, recorded };

// Unless ids are `as_written`, layers that contain only one id are left out as dense layers, and fillers that
// cannot be experts become no_expert. If ids are `recorded`, rows with one id k times also become no_expert.
// The trace's notes say what was done.
//
// `info` describes the arrays as stored. The number of experts is `num_experts` if given, else
// info.num_experts if known, else the largest id plus one. Reads the ids once, unless they are `as_written`
// and the number of experts is known. Throws InvalidArgument if a filler may be an expert and the number of
// experts is not given, or if recorded ids repeat in a way that a router's ids never do. Throws ParseError if
// no row is a router's choice.
std::unique_ptr<TraceReader> open_array_trace(TraceInfo info, std::unique_ptr<ArrayReader> ids,
                                              std::unique_ptr<ArrayReader> weights, IdsAre ids_are,
                                              std::optional<int> num_experts);

// The trace in an array of a file, with the file's metadata and other arrays (trace_file.cpp).
std::unique_ptr<TraceReader> open_trace_in(const ArrayFile& file, const ArrayInfo& ids,
                                           const TraceOptions& options);

// Selects `layers` from a trace that has all hidden layers.
std::unique_ptr<TraceReader> layers_of_trace(std::unique_ptr<TraceReader> all, const LayerNumbers& layers);

}  // namespace evenkeel::internal
