#include "evenkeel/io/internal/checkpoint/moe_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/checkpoint/tensor_names.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/internal/shape.h"

namespace evenkeel::internal {

namespace {

using Kind = TensorRole::Kind;

// The tensors of one layer while its names are read.
struct Found {
  // [part][expert]: sparse, since a name may claim any expert.
  std::map<std::string, std::map<int, std::size_t>> by_expert;
  std::vector<std::size_t> by_row;
  std::vector<std::size_t> id_tables;
  bool prediction = false;
  bool has_router = false;
  bool has_stacked = false;
  std::string unknown;      // a name that would be refused
  std::string module_part;  // one that is right in a dense layer only

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
      const int number = place.second + (found.prediction ? model_.num_layers : 0);
      if (!layers.emplace(number, checked(place, number, found)).second)
        throw parse_error(folder_, name_of(place),
                          "would be layer {}, which the checkpoint has by another name", number);
    }
    if (layers.empty())
      throw parse_error(folder_, "", "has no tensor of experts by the names of {}", model_.family->name());
    std::vector<MoeLayer> ascending;
    for (auto& [number, layer] : layers) ascending.push_back(std::move(layer));
    return ascending;
  }

 private:
  using Place = std::pair<std::string_view, int>;  // "model.layers" and a number

  static std::string name_of(const Place& place) { return fmt::format("{}.{}", place.first, place.second); }
  std::string file_of(std::size_t tensor) const {
    return folder_ + "/" + checkpoint_.files[checkpoint_.tensors[tensor].file].name;
  }
  const SafetensorsTensor& at(std::size_t tensor) const { return checkpoint_.tensors[tensor].at; }

  [[noreturn]] void refuse_unknown(const std::string& name) const {
    throw Unsupported(
        fmt::format("{}: tensor {} is not one that {} is known to have; whether it goes by expert "
                    "cannot be told",
                    folder_, name, model_.family->name()));
  }

  void read_name(std::size_t tensor) {
    const std::string& name = at(tensor).name;
    const TensorRole role = role_of(name, *model_.family->tensors);
    if (role.kind == Kind::other || role.kind == Kind::kept) return;
    // A place that is no layer has no number to be kept under.
    if (role.layer < 0) refuse_unknown(name);
    Found& found = layers_[{role.prefix, role.layer}];
    found.prediction = role.prediction;
    switch (role.kind) {
      case Kind::of_expert:
        return take_expert(found, role, tensor);
      case Kind::stacked:
        found.has_stacked = true;
        if (may_be_common(role) && is_one_number(tensor)) return;
        return take_rows(found, tensor, false);
      case Kind::router:
        found.has_router |= chooses_experts(role);
        return take_rows(found, tensor, model_.family->tensors->rows_behind);
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

  // Experts of two models, or of one by two names, have no one order.
  void require_one_model() const {
    std::optional<Place> first;
    for (const auto& [place, found] : layers_) {
      if (found.dense() || found.prediction) continue;
      if (!first) first = place;
      if (first->first != place.first)
        throw parse_error(folder_, name_of(place),
                          "has experts, and so has {}; experts of one model stand below one name",
                          name_of(*first));
    }
  }

  void take_expert(Found& found, const TensorRole& role, std::size_t tensor) {
    const int experts = model_.num_experts;
    if (role.expert >= experts)
      throw parse_error(file_of(tensor), at(tensor).name, "expert {} is outside 0..{} of config.json",
                        role.expert, experts - 1);
    const auto [same, is_new] = found.by_expert[std::string(role.part)].emplace(role.expert, tensor);
    if (!is_new)
      throw parse_error(file_of(tensor), at(tensor).name, "is {} by another name", at(same->second).name);
  }

  bool is_one_number(std::size_t tensor) const {
    return std::ranges::all_of(at(tensor).shape, [](std::int64_t length) { return length == 1; });
  }

  void take_rows(Found& found, std::size_t tensor, bool more_behind) {
    const SafetensorsTensor& rows = at(tensor);
    const std::int64_t count = num_rows(rows);
    const bool fits = count == model_.num_experts || (more_behind && count > model_.num_experts);
    if (!fits || rows.bytes() % count != 0)
      throw parse_error(file_of(tensor), rows.name,
                        "shape {} of {} bytes has not a row for each of the {} experts of config.json",
                        to_text(rows.shape), rows.bytes(), model_.num_experts);
    found.by_row.push_back(tensor);
  }

  MoeLayer checked(const Place& place, int number, Found& found) const {
    if (!found.unknown.empty()) refuse_unknown(found.unknown);
    if (!found.module_part.empty()) refuse_unknown(found.module_part);
    const std::string where = found.prediction ? name_of(place) : fmt::format("layer {}", number);
    const std::string_view router = model_.family->tensors->router.front();
    if (!found.has_router) throw parse_error(folder_, where, "has experts, but no {} to choose them", router);
    if (!found.has_stacked && found.by_expert.empty())
      throw parse_error(folder_, where, "has a {}, but no experts", router);
    MoeLayer layer{.layer = number,
                   .by_expert = {},
                   .by_row = std::move(found.by_row),
                   .id_tables = std::move(found.id_tables)};
    for (const auto& [part, tensors] : found.by_expert) {
      require_complete(tensors, part, where);
      auto& by_expert = layer.by_expert.emplace_back();
      for (const auto& [expert, tensor] : tensors) by_expert.push_back(tensor);
      require_alike(by_expert);
    }
    return layer;
  }

  void require_complete(const std::map<int, std::size_t>& tensors, const std::string& part,
                        const std::string& where) const {
    if (std::ssize(tensors) == model_.num_experts) return;
    int missing = 0;
    while (tensors.contains(missing)) ++missing;
    throw parse_error(folder_, where, "expert {} has no {}, which others have", missing, part);
  }

  // One expert's bytes can take the place of another's.
  void require_alike(const std::vector<std::size_t>& tensors) const {
    const SafetensorsTensor& first = at(tensors.front());
    for (const std::size_t tensor : tensors) {
      const SafetensorsTensor& other = at(tensor);
      if (other.dtype != first.dtype || other.shape != first.shape || other.bytes() != first.bytes())
        throw Unsupported(
            fmt::format("{}: {} is {} {} and {} is {} {}: experts of a layer must be of one type and "
                        "shape to change places",
                        folder_, first.name, first.dtype, to_text(first.shape), other.name, other.dtype,
                        to_text(other.shape)));
    }
  }

  const CheckpointTensors& checkpoint_;
  const CheckpointConfig& model_;
  const std::string& folder_;
  std::map<Place, Found> layers_;
};

}  // namespace

std::vector<MoeLayer> find_moe_layers(const CheckpointTensors& checkpoint, const CheckpointConfig& model,
                                      const std::string& folder) {
  return Search(checkpoint, model, folder).run();
}

}  // namespace evenkeel::internal
