// Finds routing in one JSON document.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "evenkeel/io/internal/find_routing.h"
#include "evenkeel/io/internal/layer_numbers.h"
#include "evenkeel/io/internal/nameless.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/limits.h"

namespace evenkeel::internal {

namespace {

// The loads of one step, {"loads": [E]} or {"counts": [ranks][E]}. Sizes given in the file must agree.
FoundStep step_of(const JsonField& json) {
  const bool by_rank = json->contains("counts");
  const JsonField list = json[by_rank ? "counts" : "loads"];
  FoundStep step{nested_integers(*list, by_rank ? 2 : 1, json.file(), list.key())};
  const std::vector<std::int64_t>& shape = step.loads.shape;
  if (step.loads.values.empty())
    list.fail("is empty{}", by_rank ? "; it must be a list by source rank of lists by expert" : "");
  if (shape.back() > max_experts) list.fail("has {} experts; allowed: 1..{}", shape.back(), max_experts);
  if (by_rank && shape[0] > max_ranks) list.fail("has {} ranks; allowed: 1..{}", shape[0], max_ranks);
  require_loads(step.loads.values, json.file(), list.key());
  if (const auto ranks = json.find("num_ranks")) step.num_ranks = ranks->integer(1, max_ranks);
  if (by_rank && step.num_ranks.value_or(shape[0]) != shape[0])
    json["num_ranks"].fail("is {}, but the counts are of {} ranks", *step.num_ranks, shape[0]);
  if (const auto experts = json.find("num_experts"))
    require_experts_said(experts->integer(), shape.back(), json.file());
  return step;
}

FoundRouting loads_of(const JsonField& json) {
  const auto loads = json.find("loads");
  if (loads && list_depth(**loads) > 1)
    return {
        .kind = "profile", .format = "json", .content = FoundProfile{profile_of_json(*json, json.file())}};
  if (json->contains("layers"))
    throw ParseError(json.file(), "layers",
                     "is given, but the counts are of one step, without layers; write counts by layer and "
                     "expert as \"loads\": [[...], ...]");
  return {.kind = "loads", .format = "json", .content = step_of(json)};
}

// Converts nested lists of numbers, at least `least_depth` deep, to an array. Frees the lists, which take
// twice the memory of the array.
ArrayFile take_array(Json& list, std::size_t least_depth, const std::string& file, const std::string& name) {
  const JsonDocument taken(std::move(list));
  const std::size_t depth = std::clamp(list_depth(taken), least_depth, std::size_t{3});
  if (has_fractions(taken)) return file_of(nested_reals(taken, depth, file, name), file, name);
  return file_of(nested_integers(taken, depth, file, name), file, name);
}

FoundRouting nameless_list(Json& list, const std::string& file, const ReadOptions& options) {
  if (!list.empty() && list[0].is_object())
    throw ParseError(file, "",
                     "is a list of records; write one record a line, as pandas' to_json(orient='records', "
                     "lines=True) does, or a text table");
  const ArrayFile array = take_array(list, 1, file, "");
  return nameless(array, array.arrays().front(), options);
}

FoundRouting counts_of(Json& list, const std::string& file, const std::string& name,
                       const ReadOptions& options) {
  const ArrayFile array = take_array(list, 2, file, name);
  return named_counts(array, array.arrays().front(), rows_of(name), options);
}

}  // namespace

void require_no_map(const Json& json, std::string_view name, const std::string& file) {
  if (name == "logical_count") return;
  for (const char* map : {"p2l_map", sglang_map_key, "last_physical_to_logical_map"})
    if (json.contains(map))
      throw parse_error(file, map,
                        "is a map of physical experts, so '{}' may count physical experts; if it counts "
                        "logical experts, rename it to 'logical_count' or remove the map",
                        name);
}

FoundRouting find_in_json(JsonDocument&& json, const std::string& file, const ReadOptions& options) {
  if (!json.is_object()) {
    FoundRouting found = nameless_list(json, file, options);
    found.format = "json";
    return found;
  }
  const JsonField fields(json, file);
  std::vector<std::string_view> names = {"loads"};
  names.insert(names.end(), count_names.begin(), count_names.end());
  const std::string name = only_of(
      names, [&](std::string_view key) { return json.contains(key); }, file);
  if (name.empty()) throw ParseError(file, "", "has neither \"loads\" nor \"counts\"");
  require_no_map(json, name, file);
  const bool said = is_short_form(options.axes) ? options.axes == "counts" : is_order_of_counts(options.axes);
  if (name == "loads" || (name == "counts" && !said)) return loads_of(fields);
  FoundRouting found = name == "counts" ? nameless_list(json[name], file, options)
                                        : counts_of(json[name], file, name, options);
  if (FoundCounts* rows = std::get_if<FoundCounts>(&found.content)) {
    rows->layers = layers_in(json, rows->num_rows, file);
    if (const auto experts = fields.find("num_experts"))
      require_experts_said(experts->integer(), rows->num_experts, file);
  }
  found.format = "json";
  return found;
}

}  // namespace evenkeel::internal
