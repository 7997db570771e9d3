#include "evenkeel/io/count_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/bare_array.h"
#include "evenkeel/io/internal/count_table.h"
#include "evenkeel/io/internal/fractional_loads.h"
#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/internal/layer_numbers.h"
#include "evenkeel/io/internal/memory_array.h"
#include "evenkeel/io/internal/moe_layers.h"
#include "evenkeel/io/internal/number_lists.h"
#include "evenkeel/io/internal/text.h"

namespace evenkeel {

namespace {

using internal::CountRows;
using internal::Json;

constexpr std::array<std::string_view, 6> names = {"counts",      "logical_count",     "expert_counts",
                                                   "expert_load", "tokens_per_expert", "weight"};
}  // namespace

const ArrayInfo* find_counts(const ArrayFile& file) {
  const ArrayInfo* counts = nullptr;
  for (std::string_view name : names) {
    const ArrayInfo* found = file.find(name);
    if (found != nullptr && counts != nullptr)
      throw ParseError(
          file.name(), found->name,
          fmt::format("stands beside '{}', and either may be the counts; keep one", counts->name));
    if (found != nullptr) counts = found;
  }
  return counts;
}

namespace {

// Gives rows the layer numbers that a file states beside its counts. Rows left out as dense layers come back.
void number_rows(const LayerNumbers& stated, RoutingFile& routing) {
  if (!stated.known()) return;
  if (routing.all_rows) routing.profile = std::exchange(routing.all_rows, std::nullopt);
  routing.notes.clear();
  routing.profile->set_layers(stated);
}

int num_rows(const RoutingFile& routing) {
  return routing.all_rows ? routing.all_rows->num_layers() : routing.profile->num_layers();
}

}  // namespace

RoutingFile open_count_array(const ArrayFile& file, std::string_view array) {
  const std::string key(array);
  std::vector<std::string> notes;
  IntArray counts;
  if (is_floating(file.at(array).dtype)) {
    DoubleArray numbers = read_doubles(file, array);
    internal::ScaledLoads loads = internal::scaled_loads(numbers.values, file.name(), key);
    loads.note_in(notes);
    counts = {std::move(numbers.shape), std::move(loads.loads)};
  } else {
    counts = read_integers(file, array);
  }
  RoutingFile routing =
      internal::routing_of_counts(std::move(counts), file.name(), key,
                                  array == "logical_count" ? CountRows::hidden_if_dense : CountRows::unsaid);
  number_rows(internal::layers_in(file, num_rows(routing)), routing);
  routing.notes.insert(routing.notes.end(), notes.begin(), notes.end());
  routing.format = name_of(file.format());
  return routing;
}

namespace {

// The name under which an object has them.
std::string key_of_counts(const Json& json) {
  const auto found = std::ranges::find_if(names, [&](std::string_view name) { return json.contains(name); });
  return std::string(found == names.end() ? "logical_count" : *found);
}

// Numbers in text are counts unless they themselves or the caller speak against it.
bool is_ids(ArrayReader& array, const std::string& file, const RoutingOptions& options) {
  const RoutingOptions told{.bare = options.bare};
  return internal::bare_array_kind(array, told, file, internal::BareArray::counts) ==
         internal::BareArray::ids;
}

// SGLang's {"logical_count": lists} has a row for every hidden layer; of lists alone nobody says what they
// are.
RoutingFile routing_of_lists(const Json& json, const std::string& file, const RoutingOptions& options) {
  const std::string key = json.is_object() ? key_of_counts(json) : "counts";
  const Json& list = json.is_object() ? internal::member(json, key.c_str(), file) : json;
  const CountRows rows = key == "logical_count" ? CountRows::hidden_if_dense : CountRows::unsaid;
  const std::size_t depth = std::clamp(internal::list_depth(list), std::size_t{2}, std::size_t{3});
  const bool counts = json.is_object() || internal::has_fractions(list);
  std::vector<std::string> notes;
  IntArray numbers = internal::nested_loads(list, depth, file, key, notes);
  if (!counts) {
    internal::MemoryArray<std::int64_t> array(file, "", numbers.shape, std::move(numbers.values));
    if (is_ids(array, file, options)) return internal::routing_of_ids(std::move(array), options.num_experts);
    numbers.values = std::move(array).values();
  }
  RoutingFile made = internal::routing_of_counts(std::move(numbers), file, key, rows);
  if (json.is_object()) number_rows(internal::layers_in(json, num_rows(made), file), made);
  made.notes.insert(made.notes.end(), notes.begin(), notes.end());
  return made;
}

// Lines of numbers without names are counts as lists in JSON are, unless something speaks for ids.
RoutingFile routing_of_text(std::string_view text, const std::string& file, const RoutingOptions& options) {
  internal::CountTable table =
      internal::read_count_table(text, file, options.num_experts, options.keep_steps);
  if (table.named || !table.notes.empty()) return internal::routing_of_table(std::move(table), file);
  internal::MemoryArray<std::int64_t> array(file, "", table.counts.shape, std::move(table.counts.values));
  if (is_ids(array, file, options)) return internal::routing_of_ids(std::move(array), options.num_experts);
  table.counts.values = std::move(array).values();
  return internal::routing_of_table(std::move(table), file);
}

}  // namespace

RoutingFile open_count_text(const ByteSource& source, const RoutingOptions& options) {
  const std::string whole = internal::read_text(source, "text");
  const std::string_view text = internal::without_mark(whole);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const bool is_json = first != std::string_view::npos && (text[first] == '{' || text[first] == '[');
  const std::string& file = source.name();
  RoutingFile routing =
      is_json ? routing_of_lists(internal::parse_json(text, file, std::ssize(whole) - std::ssize(text)), file,
                                 options)
              : routing_of_text(text, file, options);
  routing.format = is_json ? "json" : "csv";
  return routing;
}

}  // namespace evenkeel
