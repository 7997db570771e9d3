#include "evenkeel/io/internal/checkpoint/moe_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <string_view>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/shape.h"
#include "evenkeel/io/limits.h"

namespace evenkeel::internal {

namespace {

// The word before the next dot, which both are taken off `rest`.
std::string_view take_word(std::string_view& rest) {
  const std::size_t dot = rest.find('.');
  const std::string_view word = rest.substr(0, dot);
  rest = dot == std::string_view::npos ? std::string_view{} : rest.substr(dot + 1);
  return word;
}

bool take(std::string_view& rest, std::string_view word) {
  std::string_view after = rest;
  if (take_word(after) != word) return false;
  rest = after;
  return true;
}

// A number as transformers writes it: without sign and leading zeros.
std::optional<int> number(std::string_view word) {
  int value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc{} || end != word.data() + word.size() || word.front() == '-') return std::nullopt;
  if (word.size() > 1 && word.front() == '0') return std::nullopt;
  return value;
}

bool is_stacked_part(std::string_view part) {
  constexpr std::array names{"gate_up_proj", "down_proj"};
  constexpr std::array endings{"", "_bias", "_blocks", "_scales", "_scale_inv"};
  for (const std::string_view name : names)
    for (const std::string_view ending : endings)
      if (part.starts_with(name) && part.substr(name.size()) == ending) return true;
  return false;
}

bool is_router_part(std::string_view part) {
  return part == "weight" || part == "bias" || part == "e_score_correction_bias";
}

// What a name says.
struct Role {
  enum class Kind { other, module_part, of_expert, stacked, router, shared, unknown };
  Kind kind = Kind::other;
  int layer = 0;
  std::string_view prefix;  // before "layers"
  int expert = 0;
  std::string_view part;
};

bool has_word_experts(std::string_view name) {
  while (!name.empty())
    if (take_word(name) == "experts") return true;
  return false;
}

// `rest` is what stands after the module.
void read_module_part(std::string_view rest, const Family& family, Role& role) {
  role.part = rest;
  role.kind = Role::Kind::module_part;
  if (take(rest, "experts")) {
    role.part = rest;
    role.kind = is_stacked_part(rest) ? Role::Kind::stacked : Role::Kind::unknown;
    if (const auto expert = number(take_word(rest)); expert && !rest.empty()) {
      role.kind = Role::Kind::of_expert;
      role.expert = *expert;
      role.part = rest;
    }
  } else if (take(rest, family.router)) {
    role.part = rest;
    role.kind = is_router_part(rest) ? Role::Kind::router : Role::Kind::unknown;
  } else if (std::ranges::find(family.shared_parts, take_word(rest)) != family.shared_parts.end()) {
    role.kind = Role::Kind::shared;
  }
}

// "[model.]layers.N.MODULE...": everything else is `other`, or unknown where it has experts all the same.
Role role_of(std::string_view name, const Family& family) {
  Role role;
  role.kind = has_word_experts(name) ? Role::Kind::unknown : Role::Kind::other;
  std::string_view rest = name;
  if (take(rest, "model")) role.prefix = "model.";
  if (!take(rest, "layers")) return role;
  const auto layer = number(take_word(rest));
  if (!layer || *layer >= max_layers) return role;
  role.layer = *layer;
  const std::string_view module = take_word(rest);
  if (std::ranges::find(family.modules, module) == family.modules.end()) return role;
  read_module_part(rest, family, role);
  return role;
}

// The tensors of one layer while its names are read.
struct Found {
  // [part][expert]: sparse, since a name may claim any expert.
  std::map<std::string, std::map<int, std::size_t>> by_expert;
  std::vector<std::size_t> by_row;
  bool has_router = false;
  bool has_stacked = false;
  std::string unknown;      // a name that would be refused
  std::string module_part;  // one that is right in a dense layer only
};

class Search {
 public:
  Search(const CheckpointTensors& checkpoint, const ModelConfig& model, const std::string& folder)
      : checkpoint_(checkpoint), model_(model), folder_(folder) {}

  std::vector<MoeLayer> run() {
    for (std::size_t i = 0; i < checkpoint_.tensors.size(); ++i) read_name(i);
    std::vector<MoeLayer> layers;
    for (auto& [number, found] : layers_) {
      if (found.by_expert.empty() && found.by_row.empty() && found.unknown.empty())
        continue;  // a dense layer
      layers.push_back(checked(number, found));
    }
    if (layers.empty())
      throw ParseError(folder_, "",
                       fmt::format("has no tensor of experts by the names of {}", model_.family->model_type));
    return layers;
  }

 private:
  std::string file_of(std::size_t tensor) const {
    return folder_ + "/" + checkpoint_.files[checkpoint_.tensors[tensor].file].name;
  }
  const SafetensorsTensor& at(std::size_t tensor) const { return checkpoint_.tensors[tensor].at; }

  [[noreturn]] void refuse_unknown(const std::string& name) const {
    throw Unsupported(
        fmt::format("{}: tensor {} is not one that {} is known to have; whether it goes by expert "
                    "cannot be told",
                    folder_, name, model_.family->model_type));
  }

  void read_name(std::size_t tensor) {
    const std::string& name = at(tensor).name;
    const Role role = role_of(name, *model_.family);
    if (role.kind == Role::Kind::other || role.kind == Role::Kind::shared) return;
    // A place that is no layer has no number to be kept under.
    if (role.part.empty()) refuse_unknown(name);
    require_one_prefix(role, name);
    Found& found = layers_[role.layer];
    switch (role.kind) {
      case Role::Kind::of_expert:
        take_expert(found, role, tensor);
        break;
      case Role::Kind::stacked:
        found.has_stacked = true;
        take_rows(found, tensor);
        break;
      case Role::Kind::router:
        found.has_router = found.has_router || role.part == "weight";
        take_rows(found, tensor);
        break;
      case Role::Kind::unknown:
        found.unknown = name;
        break;
      default:
        found.module_part = name;
    }
  }

  void require_one_prefix(const Role& role, const std::string& name) {
    if (!prefix_) prefix_ = role.prefix;
    if (*prefix_ != role.prefix)
      throw ParseError(folder_, name, "another tensor's layer is named without or with the 'model.' before");
  }

  void take_expert(Found& found, const Role& role, std::size_t tensor) {
    const int experts = model_.num_experts;
    if (role.expert >= experts)
      throw ParseError(file_of(tensor), at(tensor).name,
                       fmt::format("expert {} is outside 0..{} of config.json", role.expert, experts - 1));
    const auto [same, is_new] = found.by_expert[std::string(role.part)].emplace(role.expert, tensor);
    if (!is_new)
      throw ParseError(file_of(tensor), at(tensor).name,
                       fmt::format("is {} by another name", at(same->second).name));
  }

  void take_rows(Found& found, std::size_t tensor) {
    const SafetensorsTensor& rows = at(tensor);
    if (rows.shape.empty() || rows.shape.front() != model_.num_experts ||
        rows.bytes() % model_.num_experts != 0)
      throw ParseError(
          file_of(tensor), rows.name,
          fmt::format("shape {} of {} bytes has not a row for each of the {} experts of config.json",
                      to_text(rows.shape), rows.bytes(), model_.num_experts));
    found.by_row.push_back(tensor);
  }

  MoeLayer checked(int number, Found& found) const {
    if (!found.unknown.empty()) refuse_unknown(found.unknown);
    if (!found.module_part.empty()) refuse_unknown(found.module_part);
    const std::string where = fmt::format("layer {}", number);
    if (!found.has_router)
      throw ParseError(folder_, where,
                       fmt::format("has experts, but no {}.weight to choose them", model_.family->router));
    if (!found.has_stacked && found.by_expert.empty())
      throw ParseError(folder_, where, fmt::format("has a {}, but no experts", model_.family->router));
    MoeLayer layer{.layer = number, .by_expert = {}, .by_row = std::move(found.by_row)};
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
    throw ParseError(folder_, where, fmt::format("expert {} has no {}, which others have", missing, part));
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
  const ModelConfig& model_;
  const std::string& folder_;
  std::map<int, Found> layers_;
  std::optional<std::string_view> prefix_;
};

}  // namespace

std::vector<MoeLayer> find_moe_layers(const CheckpointTensors& checkpoint, const ModelConfig& model,
                                      const std::string& folder) {
  return Search(checkpoint, model, folder).run();
}

}  // namespace evenkeel::internal
