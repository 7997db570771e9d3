// Routing in one JSON document.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "evenkeel/io/internal/find_routing.h"
#include "evenkeel/io/internal/layer_numbers.h"
#include "evenkeel/io/internal/nameless.h"
#include "evenkeel/io/internal/number_lists.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/limits.h"

namespace evenkeel::internal {

namespace {

// The loads of one step, by source rank or not. Numbers that a file states about itself must be true.
FoundStep step_of(const JsonField& json) {
  FoundStep step;
  const auto by_rank = json.find("counts");
  if (by_rank) {
    step.loads = nested_integers(**by_rank, 2, json.file(), "counts");
    if (step.loads.values.empty()) by_rank->fail("is empty; it is a list by source rank of lists by expert");
  } else {
    step.loads.values = json["loads"].integers();
    step.loads.shape = {std::ssize(step.loads.values)};
    if (step.loads.values.empty()) json["loads"].fail("is empty");
  }
  const std::string key = by_rank ? "counts" : "loads";
  if (step.loads.shape.back() > max_experts)
    json[key].fail("has {} experts; allowed: 1..{}", step.loads.shape.back(), max_experts);
  if (by_rank && step.loads.shape[0] > max_ranks)
    by_rank->fail("has {} ranks; allowed: 1..{}", step.loads.shape[0], max_ranks);
  require_loads(step.loads.values, json.file(), key);
  if (const auto ranks = json.find("num_ranks")) step.num_ranks = ranks->integer(1, max_ranks);
  if (by_rank && step.num_ranks.value_or(step.loads.shape[0]) != step.loads.shape[0])
    json["num_ranks"].fail("is {}, but there are {}", *step.num_ranks, step.loads.shape[0]);
  if (const auto experts = json.find("num_experts"); experts && experts->integer() != step.loads.shape.back())
    experts->fail("is {}, but there are {}", (*experts)->dump(), step.loads.shape.back());
  return step;
}

FoundRouting loads_of(const JsonField& json) {
  const auto loads = json.find("loads");
  if (loads && (*loads)->is_array() && !(*loads)->empty() && (**loads)[0].is_array())
    return {
        .kind = "profile", .format = "json", .content = FoundProfile{profile_of_json(*json, json.file())}};
  if (json->contains("layers"))
    throw ParseError(json.file(), "layers",
                     "says that these are counts by layer, but \"counts\" are by rank of one step; name them "
                     "\"loads\", by layer and expert");
  return {.kind = "loads", .format = "json", .content = step_of(json)};
}

FoundRouting counts_of(const JsonField& list, const std::string& name, const ReadOptions& options) {
  if (is_order_of_counts(options.axes)) {
    const ArrayFile array =
        file_of(nested_reals(*list, list_depth(*list), list.file(), name), list.file(), name);
    return named_counts(array, array.arrays().front(), rows_of(name), options);
  }
  const std::size_t depth = std::clamp(list_depth(*list), std::size_t{2}, std::size_t{3});
  std::vector<std::string> notes;
  IntArray numbers = nested_loads(*list, depth, list.file(), name, notes);
  FoundRouting found = found_counts(std::move(numbers), list.file(), name, rows_of(name));
  found.notes = std::move(notes);
  return found;
}

FoundRouting nameless_list(JsonDocument&& list, const std::string& file, const ReadOptions& options) {
  if (!list.empty() && list[0].is_object())
    throw ParseError(
        file, "",
        "is a list of records; write one a line, as pandas' to_json(orient='records', lines=True), "
        "or a text table");
  const std::size_t depth = std::clamp(list_depth(list), std::size_t{1}, std::size_t{3});
  // Frees the list, which takes twice the memory of its numbers.
  const auto numbers = [&](const auto& nested) {
    const JsonDocument taken = std::move(list);
    return nested(taken, depth, file, "");
  };
  if (has_fractions(list)) return nameless(numbers(nested_reals), file, options);
  return nameless(numbers(nested_integers), file, options);
}

}  // namespace

void require_no_map(const Json& json, std::string_view name, const std::string& file) {
  if (name == "logical_count") return;
  for (const char* map : {"p2l_map", "physical_to_logical_map", "last_physical_to_logical_map"})
    if (json.contains(map))
      throw parse_error(
          file, map,
          "stands beside '{}', and nobody says whether those are of physical experts; call counts "
          "by expert 'logical_count', or leave the map out",
          name);
}

FoundRouting find_in_json(JsonDocument&& json, const std::string& file, const ReadOptions& options) {
  if (!json.is_object()) {
    FoundRouting found = nameless_list(std::move(json), file, options);
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
  FoundRouting found = name == "counts" ? nameless_list(JsonDocument(std::move(json[name])), file, options)
                                        : counts_of(fields[name], name, options);
  if (FoundCounts* rows = std::get_if<FoundCounts>(&found.content)) {
    rows->layers = layers_in(json, rows->num_rows, file);
    if (const auto experts = fields.find("num_experts"))
      require_experts_said(experts->integer(), rows->num_experts, file);
  }
  found.format = "json";
  return found;
}

}  // namespace evenkeel::internal
