#include "evenkeel/io/count_matrix.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "evenkeel/io/internal/count_table.h"
#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/internal/layer_numbers.h"
#include "evenkeel/io/internal/moe_layers.h"
#include "evenkeel/io/internal/number_lists.h"
#include "evenkeel/io/internal/text.h"

namespace evenkeel {

using namespace internal;

namespace {

constexpr std::array<std::string_view, 6> names = {"counts",      "logical_count",     "expert_counts",
                                                   "expert_load", "tokens_per_expert", "weight"};

// SGLang's counts have a row for every hidden layer; of others nobody says it.
CountRows rows_of(std::string_view name) {
  return name == "logical_count" ? CountRows::hidden_if_dense : CountRows::unsaid;
}

// Gives rows the layer numbers that a file states beside its counts. Rows left out as dense layers come back.
void number_rows(const LayerNumbers& stated, RoutingFile& routing) {
  if (!stated.known()) return;
  if (routing.all_rows) routing.profile = std::exchange(routing.all_rows, std::nullopt);
  forget_dense_layers(routing.notes);
  routing.profile->set_layers(stated);
}

int num_rows(const RoutingFile& routing) {
  return routing.all_rows ? routing.all_rows->num_layers() : routing.profile->num_layers();
}

// Numbers in text are counts unless they themselves or the caller speak against it.
std::optional<RoutingFile> ids_in_text(IntArray& numbers, const std::string& file,
                                       const RoutingOptions& options) {
  return routing_of_bare_ids(numbers, file, "", {.bare = options.bare}, options.num_experts,
                             BareArray::counts);
}

RoutingFile routing_of_lists(const Json& json, const std::string& file, const RoutingOptions& options) {
  std::string key = "counts";
  if (json.is_object()) {
    const auto found = std::ranges::find_if(names, [&](auto name) { return json.contains(name); });
    key = found == names.end() ? "logical_count" : *found;
  }
  const Json& list = json.is_object() ? *JsonField(json, file)[key] : json;
  const std::size_t depth = std::clamp(list_depth(list), std::size_t{2}, std::size_t{3});
  std::vector<std::string> notes;
  IntArray numbers = nested_loads(list, depth, file, key, notes);
  if (!json.is_object() && !has_fractions(list))
    if (auto trace = ids_in_text(numbers, file, options)) return *std::move(trace);
  RoutingFile made = routing_of_counts(std::move(numbers), file, key, rows_of(key));
  if (json.is_object()) number_rows(layers_in(json, num_rows(made), file), made);
  made.notes.insert(made.notes.end(), notes.begin(), notes.end());
  return made;
}

// Lines of numbers without names are counts as lists in JSON are, unless something speaks for ids.
RoutingFile routing_of_text(std::string_view text, const std::string& file, const RoutingOptions& options) {
  CountTable table = read_count_table(text, file, options.num_experts, options.keep_steps);
  if (!table.named && table.notes.empty())
    if (auto trace = ids_in_text(table.counts, file, options)) return *std::move(trace);
  return routing_of_table(std::move(table), file);
}

}  // namespace

const ArrayInfo* find_counts(const ArrayFile& file) {
  const ArrayInfo* counts = nullptr;
  for (std::string_view name : names) {
    const ArrayInfo* found = file.find(name);
    if (found != nullptr && counts != nullptr)
      throw parse_error(file.name(), found->name,
                        "stands beside '{}', and either may be the counts; keep one", counts->name);
    if (found != nullptr) counts = found;
  }
  return counts;
}

RoutingFile open_count_array(const ArrayFile& file, std::string_view array) {
  const std::string key(array);
  RoutingFile routing = is_floating(file.at(array).dtype)
                            ? routing_of_counts(read_doubles(file, array), file.name(), key, rows_of(key))
                            : routing_of_counts(read_integers(file, array), file.name(), key, rows_of(key));
  number_rows(layers_in(file, num_rows(routing)), routing);
  routing.format = name_of(file.format());
  return routing;
}

RoutingFile open_count_text(const ByteSource& source, const RoutingOptions& options) {
  const std::string whole = read_text(source, "text");
  const std::string_view text = without_mark(whole);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const bool is_json = first != std::string_view::npos && (text[first] == '{' || text[first] == '[');
  const std::string& file = source.name();
  RoutingFile routing =
      is_json ? routing_of_lists(parse_json(text, file, std::ssize(whole) - std::ssize(text)), file, options)
              : routing_of_text(text, file, options);
  routing.format = is_json ? "json" : "csv";
  return routing;
}

}  // namespace evenkeel
