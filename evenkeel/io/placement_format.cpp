#include "evenkeel/io/placement_format.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/atomic_file.h"
#include "evenkeel/io/internal/content.h"
#include "evenkeel/io/internal/layer_numbers.h"
#include "evenkeel/io/limits.h"
#include "evenkeel/io/sglang.h"
#include "evenkeel/io/trtllm.h"
#include "evenkeel/io/unplaced_layers.h"
#include "evenkeel/io/vllm.h"
#include "evenkeel/io/vllm_ascend.h"

namespace evenkeel {

using namespace internal;

namespace {

using enum PlacementFormat;

constexpr std::array all_formats = {evenkeel, sglang, vllm, vllm_ascend, trtllm};
constexpr std::array<std::string_view, 5> format_names = {"evenkeel", "sglang", "vllm", "vllm-ascend",
                                                          "trtllm"};

// Beside what the caller says: what the file did from which the placement was read.
PlacementFormatOptions completed(PlacementFormatOptions options, const PlacementFile& file) {
  if (!options.layer_updates_per_iter) options.layer_updates_per_iter = file.layer_updates_per_iter;
  return options;
}

void require_agreement(const PlacementFile& file, const PlacementFormatOptions& options,
                       const std::string& name) {
  const auto require = [&](const char* option, const char* things, std::optional<int> given, int there) {
    if (given.value_or(there) != there)
      throw InvalidArgument(option, fmt::format("{}, but {} is for {} {}", *given, name, there, things),
                            fmt::format("{}, or a placement for {}", there, *given));
  };
  require("ranks", "ranks", options.num_ranks, file.placement.num_ranks());
  require("num_experts", "experts", options.num_experts, file.placement.num_experts());
}

// Formats that say no numbers get those that the caller says.
Placement numbered_by(const Placement& placement, const PlacementFormatOptions& options,
                      const std::string& name) {
  LayerNumbers said =
      said_layers(options.layers, options.model, {name, placement.layers(), placement.num_layers()},
                  placement.num_experts(), RowsOf::placement);
  return said.known() ? placement.numbered(std::move(said)) : placement;
}

// SGLang's file has a row for dense layers too, which nothing but its plainness tells from the others.
void require_no_dense_rows(const PlacementFile& file, const PlacementFormatOptions& options,
                           PlacementFormat to) {
  const auto from = file.provenance.find("read_from");
  if (options.layers || options.model || from == file.provenance.end() || from->second != name_of(sglang))
    return;
  std::vector<int> plain;
  const auto rows = physical_rows(file.placement, name_of(to));
  for (int row = 0; row < file.placement.num_layers(); ++row)
    if (is_dealt_round(rows[static_cast<std::size_t>(row)], file.placement.num_experts(),
                       file.placement.num_ranks()))
      plain.push_back(file.placement.layers().number_of(row));
  if (plain.empty()) return;
  throw InvalidArgument(
      "moe_layers",
      fmt::format("is not given; {} takes MoE layers alone, and layers {} are as SGLang fills dense ones",
                  name_of(to), to_text(LayerNumbers(std::move(plain)))),
      "the model's layers that have experts, such as 3-60");
}

// The model's layers that the format's file has. Layers of multi-token prediction are a model of their own to
// SGLang, vLLM and vLLM-Ascend, whose files must not have them; to TensorRT-LLM they are like the others.
Placement fitted_to_model(PlacementFormat format, const Placement& placement, const ModelLayers& model,
                          std::vector<std::string>& notes) {
  const std::vector<int> wanted = format == trtllm ? model.all_layers() : model.moe_layers;
  Placement all = with_unplaced_layers(placement, wanted, model, notes);
  std::vector<int> beyond;
  std::ranges::set_difference(all.layers().numbers(), wanted, std::back_inserter(beyond));
  if (format == evenkeel || beyond.empty()) return all;
  notes.push_back(
      fmt::format("layers of multi-token prediction ({}) are left out, since {} has no row for them",
                  to_text(LayerNumbers(std::move(beyond))), name_of(format)));
  return all.paired_with({"the model", LayerNumbers(wanted), static_cast<int>(wanted.size())},
                         "the placement", "model");
}

// vLLM and vLLM-Ascend find a row by counting the MoE layers, of which only a model says whether all are
// there.
void note_rows_by_count(PlacementFormat format, const Placement& placement, std::vector<std::string>& notes) {
  const LayerNumbers& layers = placement.layers();
  if ((format != vllm && format != vllm_ascend) || !layers.known() ||
      layers.numbers().back() + 1 == placement.num_layers())
    return;
  notes.push_back(fmt::format(
      "{} counts MoE layers: its first {} are taken to be layers {}; --model (model=) says whether "
      "the model has others",
      name_of(format), placement.num_layers(), to_text(layers)));
}

PlacementFile read_as(PlacementFormat format, const ByteSource& source,
                      const PlacementFormatOptions& options) {
  switch (format) {
    case sglang:
      return read_sglang_placement(source, options);
    case vllm:
      return {.placement = read_vllm_placement(source, options)};
    case vllm_ascend:
      return {.placement = read_vllm_ascend_placement(source, options)};
    case trtllm:
      return read_trtllm_placement(source, options);
    case evenkeel:
      break;
  }
  return read_placement(source);
}

void write_as(PlacementFormat format, const PlacementFile& file, const PlacementFormatOptions& options,
              const std::string& path) {
  switch (format) {
    case evenkeel:
      return write_placement(file, path);
    case sglang:
      return write_sglang_placement(file.placement, completed(options, file), path);
    case vllm:
      return write_vllm_placement(file.placement, path);
    case vllm_ascend:
      return write_vllm_ascend_placement(file.placement, path);
    case trtllm:
      return write_trtllm_placement(file.placement, completed(options, file), path);
  }
}

int layer_number(const std::string& option, std::string_view text) {
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0 || number >= max_layers)
    throw InvalidArgument(option, fmt::format("'{}' is not a layer", text),
                          "numbers and ranges, as in 3-60 or 0,2,4-6");
  return number;
}

void require_name(PlacementFormat format, const std::string& path) {
  // SGLang would take another path for JSON text, and vLLM-Ascend refuses it.
  const bool json_only = format == sglang || format == vllm_ascend;
  if (json_only && !path.ends_with(".json"))
    throw InvalidArgument(path, fmt::format("{} loads no file of that name", name_of(format)),
                          "a name that ends in .json");
}

}  // namespace

std::span<const PlacementFormat> placement_formats() {
  return all_formats;
}

Dispatch dispatch_for(std::optional<PlacementFormat> format, std::string_view said,
                      const std::string& option) {
  const bool is_sglangs = format == PlacementFormat::sglang;
  if (said.empty()) return is_sglangs ? Dispatch::fixed : Dispatch::even;
  const Dispatch dispatch = parse_dispatch(said, option);
  if (dispatch != Dispatch::even && format && !is_sglangs && format != PlacementFormat::evenkeel)
    throw InvalidArgument(option,
                          fmt::format("{} is SGLang's, and the file is for {}", said, name_of(*format)),
                          "even, or a file for sglang");
  return dispatch;
}

bool counts_model_layers(PlacementFormat format) {
  return format == sglang || format == trtllm;
}

std::string_view name_of(PlacementFormat format) {
  return format_names[static_cast<std::size_t>(format)];
}

PlacementFormat parse_placement_format(std::string_view name, const std::string& option) {
  for (PlacementFormat format : all_formats)
    if (name == name_of(format)) return format;
  throw InvalidArgument(option, fmt::format("'{}' is no format of placements", name),
                        fmt::format("{}", fmt::join(format_names, ", ")));
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

void require_placement_writable(PlacementFormat format, const PlacementShape& shape,
                                const PlacementFormatOptions& options, const std::string& path) {
  require_name(format, path);
  if (const int left = shape.physical_experts % shape.num_ranks; format != evenkeel && left != 0)
    throw Unsupported(
        fmt::format("{} gives every rank equally many physical experts, and {} physical experts are not "
                    "equally many on {} ranks; {} more redundant expert{} even",
                    name_of(format), shape.physical_experts, shape.num_ranks, shape.num_ranks - left,
                    shape.num_ranks - left == 1 ? " makes it" : "s make it"));
  const LayerNumbers said = said_layers(
      options.layers, options.model, {"the placement", shape.layers, shape.num_layers}, 0, RowsOf::placement);
  if (counts_model_layers(format)) {
    const auto numbers = layer_numbers_of(
        {"the placement", said.known() ? said : shape.layers, shape.num_layers}, options, name_of(format));
    if (format == sglang || options.num_hidden_layers) num_hidden_layers(numbers, options);
  }
  require_writable(path);
}

std::vector<std::string> write_placement_as(PlacementFormat format, const PlacementFile& whole,
                                            const PlacementFormatOptions& options, const std::string& path) {
  require_name(format, path);
  PlacementFile file = whole;
  std::vector<std::string> notes;
  file.placement = numbered_by(file.placement, options, "the placement");
  if (options.model)
    file.placement = fitted_to_model(format, file.placement, *options.model, notes);
  else if (!options.layers)
    note_rows_by_count(format, file.placement, notes);
  if (format == vllm || format == vllm_ascend || format == trtllm)
    require_no_dense_rows(file, options, format);
  write_as(format, file, options, path);
  return notes;
}

std::optional<PlacementFormat> detect_placement_format(const ByteSource& source) {
  return placement_format_of(detect_content(source));
}

std::optional<int> num_ranks_in(const ByteSource& source) {
  const auto format = detect_placement_format(source);
  if (format == sglang || format == vllm) return std::nullopt;
  if (format == trtllm) return trtllm_num_ranks(source);
  return read_placement_as(source).placement.num_ranks();
}

PlacementFile read_placement_as(const ByteSource& source, const PlacementFormatOptions& options) {
  // A file in none of the formats is refused by our own reader, which says what is missing.
  const Content content = detect_content(source);
  const bool is_vllm = content == Content::vllm_statistics;
  const PlacementFormat format = placement_format_of(content).value_or(is_vllm ? vllm : evenkeel);
  return read_placement_known(format, source, options);
}

namespace internal {

std::optional<PlacementFormat> placement_format_of(Content content) {
  // In the order of all_formats.
  constexpr std::array contents = {Content::placement, Content::sglang_placement, Content::vllm_placement,
                                   Content::vllm_ascend_placement, Content::trtllm_placement};
  const auto* found = std::ranges::find(contents, content);
  return found == contents.end()
             ? std::nullopt
             : std::optional(all_formats[static_cast<std::size_t>(found - contents.begin())]);
}

PlacementFile read_placement_known(PlacementFormat format, const ByteSource& source,
                                   const PlacementFormatOptions& options) {
  const std::string& name = source.name();
  PlacementFile file = read_as(format, source, options);
  file.placement = numbered_by(file.placement, options, name);
  if (format != evenkeel) file.provenance["read_from"] = name_of(format);
  require_agreement(file, options, name);
  return file;
}

}  // namespace internal

}  // namespace evenkeel
