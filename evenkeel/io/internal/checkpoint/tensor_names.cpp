#include "evenkeel/io/internal/checkpoint/tensor_names.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "evenkeel/io/limits.h"

namespace evenkeel::internal {

namespace {

using Kind = TensorRole::Kind;

// The word before the next dot, which both are taken off `rest`.
std::string_view take_word(std::string_view& rest) {
  const std::size_t dot = rest.find('.');
  const std::string_view word = rest.substr(0, dot);
  rest = dot == std::string_view::npos ? std::string_view{} : rest.substr(dot + 1);
  return word;
}

// Takes whole words off `rest`, if it begins with them.
bool take(std::string_view& rest, std::string_view words) {
  if (!rest.starts_with(words)) return false;
  if (rest.size() == words.size()) {
    rest = {};
    return true;
  }
  if (rest[words.size()] != '.') return false;
  rest.remove_prefix(words.size() + 1);
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

// The parts of quantized weights have the weight's name and some of these words behind it.
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

bool is_stacked_part(std::string_view part) {
  constexpr std::array<std::string_view, 10> names = {
      "gate_up_proj", "down_proj", "gate_proj", "up_proj", "fc1", "fc2", "w1", "w2", "w3", "w13"};
  return std::ranges::any_of(names, [&](std::string_view name) { return is_weight_of(part, name); });
}

// Some word is one that names of experts' and routers' tensors are made of.
bool looks_like_experts(std::string_view name) {
  while (!name.empty()) {
    const std::string_view word = take_word(name);
    if (word.find("expert") != std::string_view::npos || word.find("router") != std::string_view::npos ||
        word == "moe" || word == "tid2eid" || word == "block_sparse_moe")
      return true;
  }
  return false;
}

// `rest` is what stands after the module. Nothing is known of other words in it.
Kind kind_in_module(std::string_view rest, const ExpertTensors& family, TensorRole& role) {
  role.part = rest;
  const auto whole = [&](std::string_view name) { return is_weight_of(rest, name); };
  const auto below = [&](std::string_view name) {
    std::string_view after = rest;
    return take(after, name);
  };
  if (std::ranges::any_of(family.router, whole)) return Kind::router;
  if (std::ranges::find(family.id_tables, rest) != family.id_tables.end()) return Kind::id_table;
  if (std::ranges::any_of(family.kept, below)) return Kind::kept;
  if (std::ranges::any_of(family.stacked, whole)) return Kind::stacked;
  if (!take(rest, "experts")) return Kind::module_part;
  role.part = rest;
  if (is_stacked_part(rest)) return Kind::stacked;
  const auto expert = number(take_word(rest));
  if (!expert || rest.empty()) return Kind::unknown;
  role.expert = *expert;
  role.part = rest;
  return Kind::of_expert;
}

// Whether words of the router's own are used: "gate.extra" where "gate.weight" is known.
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

}  // namespace

TensorRole role_of(std::string_view name, const ExpertTensors& family) {
  TensorRole role;
  std::string_view below;
  role.kind = looks_like_experts(name) ? Kind::unknown : Kind::other;
  if (!take_layer(name, below, role)) return role;
  for (const std::string_view module : family.modules) {
    std::string_view rest = below;
    if (!module.empty() && !take(rest, module)) continue;
    const Kind kind = kind_in_module(rest, family, role);
    if (kind != Kind::module_part) {
      role.kind = kind;
      return role;
    }
    if (module.empty()) return role;
    role.kind = is_beside_router(rest, family) ? Kind::unknown : Kind::module_part;
    return role;
  }
  return role;
}

bool chooses_experts(const TensorRole& role) {
  return role.kind == Kind::router && role.part.ends_with("weight");
}

bool may_be_common(const TensorRole& role) {
  return role.part.ends_with("scale") || role.part.ends_with("scale_inv") || role.part.ends_with("amax");
}

}  // namespace evenkeel::internal
