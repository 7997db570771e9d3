#include "evenkeel/io/internal/sglang_map.h"

#include <fmt/format.h>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/internal/profile_json.h"
#include "evenkeel/io/internal/shape.h"
#include "evenkeel/io/internal/torch_file.h"

namespace evenkeel::internal {

namespace {

IntArray map_of_tensor(TorchFile& file) {
  const auto found = file.pickle().find(file.pickle().root(), kSglangMapKey);
  if (!found) throw ParseError(file.name(), kSglangMapKey, "is missing");
  if (!file.is_tensor(*found))
    throw ParseError(file.name(), kSglangMapKey,
                     fmt::format("is {}, not a tensor", file.pickle().kind_name(*found)));
  IntArray map = file.integers(*found, kSglangMapKey);
  if (map.shape.size() != 2)
    throw ParseError(file.name(), kSglangMapKey,
                     fmt::format("shape {} is not [layers, physical experts]", to_text(map.shape)));
  return map;
}

bool is_zip(const ByteSource& source) {
  std::byte head[2] = {};
  if (source.size() < 2) return false;
  source.read(0, head);
  return head[0] == std::byte{'P'} && head[1] == std::byte{'K'};
}

}  // namespace

bool is_sglang_map_file(const std::shared_ptr<const ByteSource>& source) {
  try {
    const TorchFile file(source);
    return file.pickle().find(file.pickle().root(), kSglangMapKey).has_value();
  } catch (const ParseError&) {
    return false;  // which its reader will say
  }
}

IntArray read_sglang_map(const std::shared_ptr<const ByteSource>& source) {
  if (!is_zip(*source))
    return nested_integers(member(read_json(*source), kSglangMapKey, source->name()), 2, source->name(),
                           kSglangMapKey);
  TorchFile file(source);
  return map_of_tensor(file);
}

}  // namespace evenkeel::internal
