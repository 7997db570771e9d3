#include "evenkeel/io/internal/checkpoint/moe_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <map>
#include <optional>
#include <ranges>
#include <string_view>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/dtype.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/internal/shape.h"
#include "evenkeel/io/limits.h"
#include "evenkeel/plan/contiguous_order.h"

namespace evenkeel::internal {

namespace {

// The role of a tensor by its name; the string views point into the name.
struct TensorRole {
  enum class Kind {
    other,        // does not belong to experts, though it may be in the same module
    module_part,  // part of the module that may hold experts; allowed only in a layer without experts
    of_expert,    // belongs to one expert
    stacked,      // holds all experts, a row for each
    router,       // a router's tensor with a row for each expert
    id_table,     // contains expert ids
    unknown       // looks like an expert's or a router's tensor, but is none of the above
  };
  Kind kind = Kind::other;
  std::string_view prefix;  // before the number of the layer: "model.layers"
  int layer = -1;           // -1: the name has none
  bool prediction = false;  // a layer of multi-token prediction that is numbered separately
  int expert = 0;
  std::string_view part;  // after the module, or after the expert
};

using Kind = TensorRole::Kind;

// Removes the first word of `rest` and the dot after it. Returns the word.
std::string_view take_word(std::string_view& rest) {
  const std::size_t dot = rest.find('.');
  const std::string_view word = rest.substr(0, dot);
  rest = dot == std::string_view::npos ? std::string_view{} : rest.substr(dot + 1);
  return word;
}

// Removes `words` and the dot after them if `rest` begins with these whole words. Returns whether it does.
bool take(std::string_view& rest, std::string_view words) {
  if (!rest.starts_with(words) || (rest.size() > words.size() && rest[words.size()] != '.')) return false;
  rest.remove_prefix(std::min(words.size() + 1, rest.size()));
  return true;
}

// A number as transformers writes it: no sign, no leading zeros.
std::optional<int> number(std::string_view word) {
  int value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  const bool whole = error == std::errc{} && end == word.data() + word.size();
  return whole && std::to_string(value) == word && value >= 0 ? std::optional(value) : std::nullopt;
}

// Tensors of a quantized weight have the weight's name followed by some of these words.
bool is_made_of_endings(std::string_view text) {
  constexpr std::array<std::string_view, 14> words = {"weight", "bias",  "blocks", "scales", "scale",
                                                      "inv",    "input", "packed", "global", "qweight",
                                                      "qzeros", "zero",  "point",  "amax"};
  while (!text.empty()) {
    if (text.front() != '_' && text.front() != '.') return false;
    text.remove_prefix(1);
    const std::string_view word = text.substr(0, text.find_first_of("_."));
    if (std::ranges::find(words, word) == words.end()) return false;
    text.remove_prefix(word.size());
  }
  return true;
}

bool is_weight_of(std::string_view part, std::string_view name) {
  return part.starts_with(name) && is_made_of_endings(part.substr(name.size()));
}

// Whether the name contains a word that is typical of experts' or routers' tensors.
bool looks_like_experts(std::string_view name) {
  constexpr std::array<std::string_view, 5> parts = {"expert", "router", ".moe.", "tid2eid",
                                                     "block_sparse_moe"};
  const std::string dotted = fmt::format(".{}.", name);
  return std::ranges::any_of(parts, [&](auto part) { return dotted.find(part) != std::string::npos; });
}

// Names that follow "experts" in the names of tensors that hold all experts.
constexpr std::array<std::string_view, 10> stacked_parts = {
    "gate_up_proj", "down_proj", "gate_proj", "up_proj", "fc1", "fc2", "w1", "w2", "w3", "w13"};

// `rest` is the name after the module.
Kind kind_in_module(std::string_view rest, const ExpertTensors& family, TensorRole& role) {
  role.part = rest;
  const auto whole = [&](std::string_view name) { return is_weight_of(rest, name); };
  const auto below = [&](std::string_view name) {
    std::string_view after = rest;
    return take(after, name);
  };
  if (std::ranges::any_of(family.router, whole)) return Kind::router;
  if (std::ranges::find(family.id_tables, rest) != family.id_tables.end()) return Kind::id_table;
  if (std::ranges::any_of(family.kept, below)) return Kind::other;
  if (std::ranges::any_of(family.stacked, whole)) return Kind::stacked;
  if (!take(rest, "experts")) return Kind::module_part;
  role.part = rest;
  if (std::ranges::any_of(stacked_parts, whole)) return Kind::stacked;
  const auto expert = number(take_word(rest));
  if (!expert || rest.empty()) return Kind::unknown;
  role.expert = *expert;
  role.part = rest;
  return Kind::of_expert;
}

// Whether the name is in the router's module but unknown: "gate.extra" where "gate.weight" is known.
bool is_beside_router(std::string_view part, const ExpertTensors& family) {
  return std::ranges::any_of(family.router, [&](std::string_view name) {
    const std::string_view word = take_word(name);
    std::string_view rest = part;
    return !name.empty() && take(rest, word);
  });
}

// Finds "layers.N.", "blocks.N." or "mtp.N.".
bool take_layer(std::string_view name, std::string_view& rest, TensorRole& role) {
  rest = name;
  while (!rest.empty()) {
    const std::string_view word = take_word(rest);
    role.prediction |= word == "mtp";
    if (word != "layers" && word != "blocks" && word != "mtp") continue;
    std::string_view after = rest;
    const auto layer = number(take_word(after));
    if (!layer || *layer >= max_layers) continue;
    role.layer = *layer;
    role.prefix = name.substr(0, static_cast<std::size_t>(rest.data() - name.data()) - 1);
    rest = after;
    return true;
  }
  return false;
}

TensorRole role_of(std::string_view name, const ExpertTensors& family) {
  TensorRole role;
  std::string_view below;
  role.kind = looks_like_experts(name) ? Kind::unknown : Kind::other;
  if (!take_layer(name, below, role)) return role;
  for (const std::string_view module : family.modules) {
    std::string_view rest = below;
    if (!module.empty() && !take(rest, module)) continue;
    const Kind kind = kind_in_module(rest, family, role);
    if (kind != Kind::module_part)
      role.kind = kind;
    else if (!module.empty())
      role.kind = is_beside_router(rest, family) ? Kind::unknown : kind;
    return role;
  }
  return role;
}

// A layer while its names are read.
struct Found : MoeLayer {
  bool prediction = false;
  bool has_router = false;
  bool has_stacked = false;
  std::string unknown;      // the name of an unknown tensor
  std::string module_part;  // the name of a tensor that is allowed only in a dense layer

  bool dense() const { return by_expert.empty() && by_row.empty() && id_tables.empty() && unknown.empty(); }
};

class Search {
 public:
  Search(const CheckpointTensors& checkpoint, const CheckpointConfig& model, const std::string& folder)
      : checkpoint_(checkpoint), model_(model), folder_(folder) {}

  std::vector<MoeLayer> run() {
    for (std::size_t i = 0; i < checkpoint_.tensors.size(); ++i) read_name(i);
    require_one_model();
    std::map<int, MoeLayer> layers;
    for (auto& [place, found] : layers_) {
      if (found.dense()) continue;
      found.layer = place.second + (found.prediction ? model_.num_layers : 0);
      require_whole(found, found.prediction ? name_of(place) : fmt::format("layer {}", found.layer));
      if (!layers.emplace(found.layer, found).second)
        throw parse_error(folder_, name_of(place),
                          "is layer {}, which the checkpoint also has under another name", found.layer);
    }
    if (layers.empty())
      throw parse_error(folder_, "", "has no tensor named like the experts of {}", model_.family->name());
    const auto ascending = std::views::values(layers);
    return {ascending.begin(), ascending.end()};
  }

 private:
  using Place = std::pair<std::string_view, int>;  // "model.layers" and a number

  static std::string name_of(const Place& place) { return fmt::format("{}.{}", place.first, place.second); }
  std::string file_of(std::size_t tensor) const {
    return folder_ + "/" + checkpoint_.files[checkpoint_.tensors[tensor].file].name;
  }
  const SafetensorsTensor& at(std::size_t tensor) const { return checkpoint_.tensors[tensor].at; }

  [[noreturn]] void refuse_unknown(const std::string& name) const {
    throw Unsupported(fmt::format("{}: tensor {} is not known for {}; it may depend on the order of experts",
                                  folder_, name, model_.family->name()));
  }

  void read_name(std::size_t tensor) {
    const std::string& name = at(tensor).name;
    const TensorRole role = role_of(name, *model_.family->tensors);
    if (role.kind == Kind::other) return;
    // A tensor outside of layers has no layer number to be stored under.
    if (role.layer < 0) refuse_unknown(name);
    Found& found = layers_[{role.prefix, role.layer}];
    found.prediction = role.prediction;
    switch (role.kind) {
      case Kind::of_expert:
        return take_expert(found, role, tensor);
      case Kind::stacked:
        found.has_stacked = true;
        if (is_common_scale(role.part, at(tensor))) return;
        return take_rows(found, tensor, false);
      case Kind::router:
        found.has_router |= role.part.ends_with("weight");  // not a bias
        return take_rows(found, tensor, model_.family->tensors->has_extra_rows);
      case Kind::id_table:
        found.id_tables.push_back(tensor);
        return;
      case Kind::unknown:
        found.unknown = name;
        return;
      default:
        found.module_part = name;
    }
  }

  // Throws if experts have two different name prefixes: they may belong to two models.
  void require_one_model() const {
    std::optional<Place> first;
    for (const auto& [place, found] : layers_) {
      if (found.dense() || found.prediction) continue;
      if (!first) first = place;
      if (first->first != place.first)
        throw parse_error(
            folder_, name_of(place),
            "has experts, and so has {}; all layers with experts must have names with one prefix",
            name_of(*first));
    }
  }

  void take_expert(Found& found, const TensorRole& role, std::size_t tensor) {
    const int experts = model_.num_experts;
    if (role.expert >= experts)
      throw parse_error(file_of(tensor), at(tensor).name,
                        "expert {} is outside 0..{}, the experts of config.json", role.expert, experts - 1);
    const auto [same, is_new] = found.by_expert[std::string(role.part)].emplace(role.expert, tensor);
    if (!is_new)
      throw parse_error(file_of(tensor), at(tensor).name, "is the same as {} under another name",
                        at(same->second).name);
  }

  // One number for all experts, such as an activation scale.
  static bool is_common_scale(std::string_view part, const SafetensorsTensor& tensor) {
    return (part.ends_with("scale") || part.ends_with("scale_inv") || part.ends_with("amax")) &&
           std::ranges::all_of(tensor.shape, [](std::int64_t length) { return length == 1; });
  }

  void take_rows(Found& found, std::size_t tensor, bool extra_rows) {
    const SafetensorsTensor& rows = at(tensor);
    const std::int64_t count = num_rows(rows);
    const bool fits = count == model_.num_experts || (extra_rows && count > model_.num_experts);
    if (!fits || rows.bytes() % count != 0)
      throw parse_error(file_of(tensor), rows.name,
                        "shape {} of {} bytes does not have a row for each of the {} experts of config.json",
                        to_text(rows.shape), rows.bytes(), model_.num_experts);
    found.by_row.push_back(tensor);
  }

  void require_whole(const Found& found, const std::string& where) const {
    for (const std::string& name : {found.unknown, found.module_part})
      if (!name.empty()) refuse_unknown(name);
    const std::string_view router = model_.family->tensors->router.front();
    if (!found.has_router) throw parse_error(folder_, where, "has experts, but no {} to choose them", router);
    if (!found.has_stacked && found.by_expert.empty())
      throw parse_error(folder_, where, "has a {}, but no experts", router);
    for (const auto& [part, tensors] : found.by_expert) {
      for (int expert = 0; expert < model_.num_experts; ++expert)
        if (!tensors.contains(expert))
          throw parse_error(folder_, where, "expert {} has no {}, which other experts have", expert, part);
      for (const auto& [expert, tensor] : tensors) require_alike(at(tensors.at(0)), at(tensor));
    }
  }

  // Throws unless the two tensors can be exchanged byte for byte.
  void require_alike(const SafetensorsTensor& first, const SafetensorsTensor& other) const {
    if (other.dtype == first.dtype && other.shape == first.shape && other.bytes() == first.bytes()) return;
    throw Unsupported(
        fmt::format("{}: {} is {} {} and {} is {} {}: experts of a layer must be of one type and shape to "
                    "change places",
                    folder_, first.name, first.dtype, to_text(first.shape), other.name, other.dtype,
                    to_text(other.shape)));
  }

  const CheckpointTensors& checkpoint_;
  const CheckpointConfig& model_;
  const std::string& folder_;
  std::map<Place, Found> layers_;
};

// Adjacent ranges of a file become one range.
void append_range(const ByteRange& range, std::vector<ByteRange>& ranges) {
  if (range.bytes == 0) return;
  if (!ranges.empty() && ranges.back().file == range.file && ranges.back().ids == range.ids &&
      ranges.back().begin + ranges.back().bytes == range.begin) {
    ranges.back().bytes += range.bytes;
  } else {
    ranges.push_back(range);
  }
}

std::size_t width_of_ids(const SafetensorsTensor& tensor) {
  const DtypeNames* const type = find_dtype(&DtypeNames::safetensors, tensor.dtype);
  if (type != nullptr && is_integer(type->type) && tensor.bytes() % type->item_size == 0)
    return static_cast<std::size_t>(type->item_size);
  throw Unsupported(fmt::format("{} is a table of expert ids of type {}, which is not an integer type",
                                tensor.name, tensor.dtype));
}

}  // namespace

std::vector<MoeLayer> find_moe_layers(const CheckpointTensors& checkpoint, const CheckpointConfig& model,
                                      const std::string& folder) {
  return Search(checkpoint, model, folder).run();
}

void TensorSource::renumber(std::span<std::byte> ids, const std::string& file,
                            const std::string& name) const {
  for (std::size_t at = 0; at + id_bytes <= ids.size(); at += id_bytes) {
    std::uint64_t id = 0;
    std::memcpy(&id, &ids[at], id_bytes);
    if (id >= new_ids.size())
      throw parse_error(file, name,
                        "has the number {:#x} ({} bytes), which is not an expert id; allowed: 0..{}", id,
                        id_bytes, new_ids.size() - 1);
    const auto made = static_cast<std::uint64_t>(new_ids[id].value());
    std::memcpy(&ids[at], &made, id_bytes);
  }
}

Renumbering::Renumbering(const CheckpointTensors& checkpoint)
    : checkpoint_(checkpoint), sources_(checkpoint.tensors.size()) {
  for (std::size_t tensor = 0; tensor < sources_.size(); ++tensor) sources_[tensor].tensor = tensor;
}

void Renumbering::renumber(const MoeLayer& layer, std::span<const ExpertId> order) {
  if (std::ranges::is_sorted(order)) return;
  for (const auto& [part, tensors] : layer.by_expert)
    for (const auto& [id, tensor] : tensors)
      sources_[tensor].tensor = tensors.at(order[static_cast<std::size_t>(id)].value());
  for (const std::size_t tensor : layer.by_row) sources_[tensor].row_order = {order.begin(), order.end()};
  for (const std::size_t tensor : layer.id_tables) {
    sources_[tensor].new_ids = new_ids(order);
    sources_[tensor].id_bytes = width_of_ids(checkpoint_.tensors[tensor].at);
  }
}

std::vector<ByteRange> Renumbering::ranges(std::size_t file) const {
  std::vector<std::size_t> tensors;
  for (std::size_t i = 0; i < checkpoint_.tensors.size(); ++i)
    if (checkpoint_.tensors[i].file == file) tensors.push_back(i);
  std::ranges::sort(tensors, {}, [&](std::size_t i) {
    return std::pair(checkpoint_.tensors[i].at.begin, checkpoint_.tensors[i].at.end);
  });
  std::vector<ByteRange> ranges;
  append_range({.file = checkpoint_.files[file].name, .bytes = checkpoint_.files[file].data_begin}, ranges);
  for (const std::size_t tensor : tensors) {
    const TensorSource& from = sources_[tensor];
    const StoredTensor& stored = checkpoint_.tensors[from.tensor];
    const WeightFile& in = checkpoint_.files[stored.file];
    ByteRange rest = {.file = in.name,
                      .begin = in.data_begin + stored.at.begin,
                      .bytes = stored.at.bytes(),
                      .ids = from.new_ids.empty() ? nullptr : &from};
    const std::int64_t begin = rest.begin;
    for (const ExpertId expert : from.row_order) {
      const std::int64_t row = stored.at.bytes() / num_rows(stored.at);
      append_range({.file = in.name, .begin = begin + expert.value() * row, .bytes = row}, ranges);
      rest.begin += row;
      rest.bytes -= row;
    }
    // Rows after the experts' rows stay where they are.
    append_range(rest, ranges);
  }
  return ranges;
}

std::int64_t Renumbering::count_permuted() const {
  return std::ranges::count_if(
      sources_, [](const TensorSource& from) { return !from.row_order.empty() || !from.new_ids.empty(); });
}

std::int64_t Renumbering::count_renamed() const {
  std::int64_t count = 0;
  for (std::size_t tensor = 0; tensor < sources_.size(); ++tensor)
    count += sources_[tensor].tensor != tensor ? 1 : 0;
  return count;
}

}  // namespace evenkeel::internal
