// Plain count matrices, [layers, experts] or [steps, layers, experts], as people save them for EPLB
// (docs/formats.md#counts): npy, npz, safetensors, CSV, JSON.
#pragma once

#include <string_view>

#include "evenkeel/io/array_file.h"
#include "evenkeel/io/byte_source.h"
#include "evenkeel/io/routing_file.h"

namespace evenkeel {

// The array of counts by one of the names that are known for them; nullptr where there is none.
const ArrayInfo* find_counts(const ArrayFile& file);
// Numbers are whole and 0 or more, of any type. Throws ParseError.
RoutingFile open_count_array(const ArrayFile& file, std::string_view array);
// Text: JSON lists, {"logical_count": lists} as SGLang takes them, or a table of numbers
// (internal/count_table.h). JSON lists that nobody named may be the ids of tokens, and are then a trace.
RoutingFile open_count_text(const ByteSource& source, const RoutingOptions& options = {});

}  // namespace evenkeel
