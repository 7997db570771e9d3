#include "evenkeel/io/placement_format.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/content.h"
#include "evenkeel/io/internal/limits.h"
#include "evenkeel/io/sglang.h"
#include "evenkeel/io/trtllm.h"
#include "evenkeel/io/vllm.h"
#include "evenkeel/io/vllm_ascend.h"

namespace evenkeel {

namespace {

using enum PlacementFormat;

constexpr std::array all_formats = {evenkeel, sglang, vllm, vllm_ascend, trtllm};

int layer_number(const std::string& option, std::string_view text) {
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0 ||
      number >= internal::max_layers)
    throw InvalidArgument(option, fmt::format("'{}' is not a layer", text),
                          "numbers and ranges, as in 3-60 or 0,2,4-6");
  return number;
}

}  // namespace

std::string_view name_of(PlacementFormat format) {
  switch (format) {
    case evenkeel:
      return "evenkeel";
    case sglang:
      return "sglang";
    case vllm:
      return "vllm";
    case vllm_ascend:
      return "vllm-ascend";
    case trtllm:
      return "trtllm";
  }
  return "unknown";
}

PlacementFormat parse_placement_format(std::string_view name, const std::string& option) {
  std::string names;
  for (PlacementFormat format : all_formats) {
    if (name == name_of(format)) return format;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name_of(format));
  }
  throw InvalidArgument(option, fmt::format("'{}' is no format of placements", name), names);
}

std::vector<int> parse_layers(const std::string& option, std::string_view text) {
  std::vector<int> layers;
  while (true) {
    const std::string_view part = text.substr(0, text.find(','));
    const std::size_t dash = part.find('-');
    const int first = layer_number(option, part.substr(0, dash));
    const int last = dash == std::string_view::npos ? first : layer_number(option, part.substr(dash + 1));
    if (last < first || (!layers.empty() && first <= layers.back()))
      throw InvalidArgument(option, fmt::format("'{}' does not ascend", part),
                            "ascending numbers and ranges, as in 3-60 or 0,2,4-6");
    for (int layer = first; layer <= last; ++layer) layers.push_back(layer);
    if (part.size() == text.size()) return layers;
    text.remove_prefix(part.size() + 1);
  }
}

std::string layers_text(const std::vector<int>& layers) {
  std::string text;
  for (std::size_t first = 0, last = 0; first < layers.size(); first = ++last) {
    while (last + 1 < layers.size() && layers[last + 1] == layers[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", layers[first]);
    if (last > first) text += fmt::format("-{}", layers[last]);
  }
  return text;
}

void require_placement_name(PlacementFormat format, const std::string& path) {
  // SGLang would take another path for JSON text, and vLLM-Ascend refuses it.
  const bool json_only = format == sglang || format == vllm_ascend;
  if (json_only && !path.ends_with(".json"))
    throw InvalidArgument(path, fmt::format("{} loads no file of that name", name_of(format)),
                          "a name that ends in .json");
}

void write_placement_as(PlacementFormat format, const PlacementFile& file,
                        const PlacementFormatOptions& options, const std::string& path) {
  require_placement_name(format, path);
  switch (format) {
    case evenkeel:
      return write_placement(file, path);
    case sglang:
      return write_sglang_placement(file.placement, options, path);
    case vllm:
      return write_vllm_placement(file.placement, path);
    case vllm_ascend:
      return write_vllm_ascend_placement(file.placement, path);
    case trtllm:
      return write_trtllm_placement(file.placement, options, path);
  }
}

std::optional<PlacementFormat> detect_placement_format(const std::shared_ptr<const ByteSource>& source) {
  switch (internal::detect_content(source)) {
    case internal::Content::placement:
      return evenkeel;
    case internal::Content::sglang_placement:
      return sglang;
    case internal::Content::vllm_placement:
      return vllm;
    case internal::Content::vllm_ascend_placement:
      return vllm_ascend;
    case internal::Content::trtllm_placement:
      return trtllm;
    default:
      return std::nullopt;
  }
}

PlacementFile read_placement_as(const std::string& path, const PlacementFormatOptions& options) {
  return read_placement_as(open_source(path), options);
}

PlacementFile read_placement_as(std::shared_ptr<const ByteSource> source,
                                const PlacementFormatOptions& options) {
  const auto format = detect_placement_format(source);
  const auto file_of = [&](Placement placement) {
    return PlacementFile{.placement = std::move(placement),
                         .objective = {},
                         .bound = {},
                         .provenance = {{"read_from", std::string(name_of(*format))}}};
  };
  // What is none of them is refused by our own reader, which says what is missing.
  switch (format.value_or(evenkeel)) {
    case evenkeel:
      return read_placement(std::move(source));
    case sglang:
      return file_of(read_sglang_placement(*source, options));
    case vllm:
      return file_of(read_vllm_placement(*source, options));
    case vllm_ascend:
      return file_of(read_vllm_ascend_placement(*source, options));
    case trtllm:
      return file_of(read_trtllm_placement(*source, options));
  }
  return read_placement(std::move(source));
}

}  // namespace evenkeel
