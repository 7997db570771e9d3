// Counts in JSON lines, a record a line (docs/formats.md#counts): what people's hooks write.
//
//   {"layer": 3, "step": 1, "counts": [7, 0, 2, 5]}       a layer of a step
//   {"layer": 3, "expert": 0, "count": 7}                  an expert of a layer
//   {"step": 1, "logical_count": [[7, 0], [2, 5]]}         all layers of a step
#pragma once

#include "evenkeel/io/byte_source.h"
#include "evenkeel/io/routing_file.h"

namespace evenkeel {

// Whether a file has more than one JSON object, a line each. Only its beginning is looked at.
bool is_json_lines(std::string_view beginning);

// All records are read, and added up over steps, unless these are to be kept. Throws ParseError where their
// keys do not say what they are: no key of counts or several, lists whose layer nobody says, a layer twice
// without a step to tell them apart.
RoutingFile open_count_lines(const ByteSource& source, const RoutingOptions& options = {});

}  // namespace evenkeel
