#include "evenkeel/io/placement_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/base/parse.h"
#include "evenkeel/io/atomic_file.h"
#include "evenkeel/io/internal/content.h"
#include "evenkeel/io/internal/layer_numbers.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/internal/server_placements.h"
#include "evenkeel/io/limits.h"
#include "evenkeel/io/unplaced_layers.h"

namespace evenkeel {

using namespace internal;

namespace {

using enum PlacementFormat;

// Everything that differs between the formats.
struct Format {
  PlacementFormat format;
  std::string_view name;
  Content content;
  std::string_view server = {};                          // the server's name in messages
  ServerPlacement (*read)(const ByteSource&) = nullptr;  // null for our own format
  std::string (*text)(const ServerRows&) = nullptr;
  bool counts_model_layers = false;
  // The name must end in .json: SGLang reads any other path as JSON text, and vLLM-Ascend refuses it.
  bool json_only = false;
};

constexpr std::array<Format, 5> formats = {{
    {evenkeel, "evenkeel", Content::placement},
    {sglang, "sglang", Content::sglang_placement, "SGLang", read_sglang, sglang_text, true, true},
    {vllm, "vllm", Content::vllm_placement, "vLLM", read_vllm, vllm_text},
    {vllm_ascend, "vllm-ascend", Content::vllm_ascend_placement, "vLLM-Ascend", read_vllm_ascend,
     vllm_ascend_text, false, true},
    {trtllm, "trtllm", Content::trtllm_placement, "TensorRT-LLM", read_trtllm, trtllm_text, true},
}};

const Format& facts_of(PlacementFormat format) {
  return formats[static_cast<std::size_t>(format)];
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

// A placement without layer numbers gets the numbers in the options.
Placement numbered_by(const Placement& placement, const PlacementFormatOptions& options,
                      const std::string& name) {
  LayerNumbers given =
      layers_from_options(options.layers, options.model, {name, placement.layers(), placement.num_layers()},
                          placement.num_experts(), RowsOf::placement);
  return given.known() ? placement.numbered(std::move(given)) : placement;
}

// SGLang's file also has rows for dense layers. Such a row can only be recognised by its default order.
void require_no_dense_rows(const PlacementFile& file, const std::vector<PhysicalRow>& rows,
                           const PlacementFormatOptions& options, PlacementFormat to) {
  const auto from = file.provenance.find("read_from");
  if (to == sglang || options.layers || options.model || from == file.provenance.end() ||
      from->second != name_of(sglang))
    return;
  const PhysicalRow default_order = default_row(rows.front().size(), file.placement.num_experts());
  std::vector<int> plain;
  for (int row = 0; row < file.placement.num_layers(); ++row)
    if (rows[static_cast<std::size_t>(row)] == default_order)
      plain.push_back(file.placement.layers().number_of(row));
  if (plain.empty()) return;
  throw InvalidArgument(
      "moe_layers",
      fmt::format(
          "is not given; {} takes only MoE layers, but layers {} look like SGLang's rows for dense layers",
          name_of(to), to_text(LayerNumbers(std::move(plain)))),
      "the model's layers that have experts, such as 3-60");
}

// The placement with exactly the layers that the format's file needs. SGLang, vLLM and vLLM-Ascend treat
// layers of multi-token prediction as a separate model, so their files must not have them. TensorRT-LLM
// treats them like the other layers.
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

// vLLM and vLLM-Ascend find a row by counting the MoE layers. Only the model's config tells whether the
// placement has all of them. Without the config, a note says what is assumed.
void note_rows_by_count(PlacementFormat format, const Placement& placement, std::vector<std::string>& notes) {
  const LayerNumbers& layers = placement.layers();
  if (format == evenkeel || counts_model_layers(format) || !layers.known() ||
      layers.numbers().back() + 1 == placement.num_layers())
    return;
  notes.push_back(
      fmt::format("{} numbers MoE layers only: the model's first {} are assumed to be layers {}; give "
                  "--model (model=) to check this",
                  name_of(format), placement.num_layers(), to_text(layers)));
}

// Keeps only the rows of these layers, in a file that numbers its rows.
void keep_layers(ServerPlacement& in_file, const std::vector<int>& layers, const std::string& file) {
  LayerNumbers kept(layers, "moe_layers");
  std::vector<NamedRow> rows;
  for (const int layer : kept.numbers()) {
    const auto row = in_file.layers.row_of(layer, static_cast<int>(in_file.rows.size()));
    if (!row)
      throw InvalidArgument("moe_layers", fmt::format("{} has no layer {}", file, layer),
                            to_text(in_file.layers));
    rows.push_back(std::move(in_file.rows[static_cast<std::size_t>(*row)]));
  }
  in_file.rows = std::move(rows);
  in_file.layers = std::move(kept);
}

int largest_expert(const ServerPlacement& in_file) {
  std::int64_t largest = 0;
  for (const NamedRow& row : in_file.rows)
    for (const std::int64_t expert : row.experts) largest = std::max(largest, expert);
  return static_cast<int>(std::min<std::int64_t>(largest, max_experts - 1));
}

// If the file lacks the number of ranks or experts, it is taken from the options.
Placement placement_of(ServerPlacement in_file, const PlacementFormatOptions& options,
                       const std::string& file) {
  const std::optional<int> num_ranks = in_file.num_ranks ? in_file.num_ranks : options.num_ranks;
  if (!num_ranks)
    throw InvalidArgument("ranks", fmt::format("is not given, and {} does not say the number of ranks", file),
                          "1 or more");
  if (*num_ranks < 1) throw InvalidArgument("ranks", fmt::format("{} ranks", *num_ranks), "1 or more");
  if (in_file.rows.empty()) throw ParseError(file, "", "has no layer");
  if (!in_file.num_experts) in_file.num_experts = options.num_experts;
  const int num_experts = in_file.num_experts ? *in_file.num_experts : largest_expert(in_file) + 1;
  std::vector<LayerPlacement> layers;
  for (const NamedRow& row : in_file.rows) {
    if (const auto slots = std::ssize(row.experts); slots != in_file.num_slots.value_or(slots))
      throw parse_error(file, row.key, "has {} slots, but num_slots is {}", slots, *in_file.num_slots);
    layers.emplace_back(homes_in(row, even_offsets(row, *num_ranks, file), num_experts, file), *num_ranks);
  }
  return Placement(std::move(layers), std::move(in_file.layers));
}

PlacementFile read_as(PlacementFormat format, const ByteSource& source,
                      const PlacementFormatOptions& options) {
  if (format == evenkeel) return read_placement(source);
  ServerPlacement in_file = facts_of(format).read(source);
  if (counts_model_layers(format) && options.layers)
    keep_layers(in_file, *options.layers, source.name());
  else if (format == sglang && options.model)
    keep_layers(in_file, options.model->moe_layers, source.name());
  const auto updates = in_file.layer_updates_per_iter;
  return {.placement = placement_of(std::move(in_file), options, source.name()),
          .provenance = {{"read_from", std::string(name_of(format))}},
          .layer_updates_per_iter = updates};
}

void write_as(PlacementFormat format, const PlacementFile& file, const PlacementFormatOptions& options,
              const std::string& path) {
  if (format == evenkeel) return write_placement(file, path);
  const Format& facts = facts_of(format);
  ServerRows rows{.rows = physical_rows(file.placement, facts.server),
                  .num_experts = file.placement.num_experts(),
                  .num_ranks = file.placement.num_ranks()};
  require_no_dense_rows(file, rows.rows, options, format);
  if (facts.counts_model_layers) {
    rows.layers = layer_numbers_of({"the placement", file.placement.layers(), file.placement.num_layers()},
                                   options, facts.name);
    rows.num_hidden_layers = num_hidden_layers(rows.layers, options);
  }
  rows.layer_updates_per_iter =
      options.layer_updates_per_iter.value_or(file.layer_updates_per_iter.value_or(0));
  if (rows.layer_updates_per_iter < 0)
    throw InvalidArgument("layer_updates_per_iter", fmt::format("{}", rows.layer_updates_per_iter),
                          "0 or more");
  write_file(path, facts.text(rows));
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
  if (facts_of(format).json_only && !path.ends_with(".json"))
    throw InvalidArgument(path, fmt::format("{} loads only files whose name ends in .json", name_of(format)),
                          "a name that ends in .json");
}

}  // namespace

std::vector<std::string> placement_format_names() {
  std::vector<std::string> names;
  for (const Format& each : formats) names.emplace_back(each.name);
  return names;
}

Dispatch dispatch_for(std::optional<PlacementFormat> format, std::string_view given,
                      const std::string& option) {
  const bool is_sglangs = format == PlacementFormat::sglang;
  if (given.empty()) return is_sglangs ? Dispatch::fixed : Dispatch::even;
  const Dispatch dispatch = parse_dispatch(given, option);
  if (dispatch != Dispatch::even && format && !is_sglangs && format != PlacementFormat::evenkeel)
    throw InvalidArgument(
        option, fmt::format("{} is a rule of SGLang, but the file is for {}", given, name_of(*format)),
        "even, or a file for sglang");
  return dispatch;
}

bool counts_model_layers(PlacementFormat format) {
  return facts_of(format).counts_model_layers;
}

std::string_view name_of(PlacementFormat format) {
  return facts_of(format).name;
}

PlacementFormat parse_placement_format(std::string_view name, const std::string& option) {
  return formats[parse_word(option, std::string(name), placement_format_names())].format;
}

std::vector<int> parse_layers(const std::string& option, std::string_view text) {
  std::vector<int> layers;
  for (const std::string& part : split(text, ',')) {
    const std::size_t dash = part.find('-');
    const int first = layer_number(option, part.substr(0, dash));
    const int last = dash == std::string::npos ? first : layer_number(option, part.substr(dash + 1));
    if (last < first || (!layers.empty() && first <= layers.back()))
      throw InvalidArgument(option, fmt::format("'{}' does not ascend", part),
                            "ascending numbers and ranges, as in 3-60 or 0,2,4-6");
    for (int layer = first; layer <= last; ++layer) layers.push_back(layer);
  }
  return layers;
}

void require_placement_writable(PlacementFormat format, const PlacementShape& shape,
                                const PlacementFormatOptions& options, const std::string& path) {
  require_name(format, path);
  if (const int left = shape.physical_experts % shape.num_ranks; format != evenkeel && left != 0)
    throw Unsupported(
        fmt::format("{} needs equally many physical experts on every rank, and {} physical experts cannot be "
                    "divided evenly over {} ranks; {} more redundant expert{} even",
                    name_of(format), shape.physical_experts, shape.num_ranks, shape.num_ranks - left,
                    shape.num_ranks - left == 1 ? " makes it" : "s make it"));
  const LayerNumbers given = layers_from_options(
      options.layers, options.model, {"the placement", shape.layers, shape.num_layers}, 0, RowsOf::placement);
  if (counts_model_layers(format)) {
    const auto numbers = layer_numbers_of(
        {"the placement", given.known() ? given : shape.layers, shape.num_layers}, options, name_of(format));
    num_hidden_layers(numbers, options);
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
  write_as(format, file, options, path);
  return notes;
}

std::optional<PlacementFormat> detect_placement_format(const ByteSource& source) {
  return placement_format_of(detect_content(source));
}

std::optional<int> num_ranks_in(const ByteSource& source) {
  const auto format = detect_placement_format(source);
  if (format && format != evenkeel) return facts_of(*format).read(source).num_ranks;
  return read_placement_as(source).placement.num_ranks();
}

PlacementFile read_placement_as(const ByteSource& source, const PlacementFormatOptions& options) {
  // A file in none of the formats goes to our own reader, whose error says what is missing.
  const Content content = detect_content(source);
  const bool is_vllm = content == Content::vllm_statistics;
  const PlacementFormat format = placement_format_of(content).value_or(is_vllm ? vllm : evenkeel);
  return read_placement_known(format, source, options);
}

namespace internal {

std::optional<PlacementFormat> placement_format_of(Content content) {
  const auto* found = std::ranges::find(formats, content, &Format::content);
  return found == formats.end() ? std::nullopt : std::optional(found->format);
}

PlacementFile read_placement_known(PlacementFormat format, const ByteSource& source,
                                   const PlacementFormatOptions& options) {
  const std::string& name = source.name();
  PlacementFile file = read_as(format, source, options);
  file.placement = numbered_by(file.placement, options, name);
  require_agreement(file, options, name);
  return file;
}

}  // namespace internal

}  // namespace evenkeel
