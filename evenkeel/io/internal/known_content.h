// The readers behind open_routing() and read_placement_as(), for whoever has looked already what a file is.
#pragma once

#include <memory>
#include <optional>

#include "evenkeel/io/internal/content.h"
#include "evenkeel/io/placement_format.h"
#include "evenkeel/io/routing_file.h"

namespace evenkeel::internal {

// None if the content is no placement.
std::optional<PlacementFormat> placement_format_of(Content content);

PlacementFile read_placement_known(PlacementFormat format, std::shared_ptr<const ByteSource> source,
                                   const PlacementFormatOptions& options);
RoutingFile open_routing_known(Content content, std::shared_ptr<const ByteSource> source,
                               const RoutingOptions& options);

}  // namespace evenkeel::internal
