#include "evenkeel/io/profile_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <span>
#include <utility>

#include "evenkeel/io/atomic_file.h"
#include "evenkeel/io/internal/array_writer.h"
#include "evenkeel/io/internal/find_routing.h"
#include "evenkeel/io/internal/formats.h"
#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/internal/layer_numbers.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/internal/shape.h"

namespace evenkeel {

using namespace internal;

namespace {

constexpr std::string_view profile_format = "evenkeel.profile.v1";

// The caller has checked the shape of loads. Throws ParseError for a wrong shape of transitions, negative
// numbers and totals above 2^63-1.
RoutingProfile make_profile(const std::string& file, IntArray loads, IntArray transitions) {
  const std::int64_t layers = loads.shape[0], experts = loads.shape[1];
  const std::vector<std::int64_t> shape = {layers - 1, experts, experts};
  const bool none = transitions.values.empty() && (transitions.shape.empty() || layers == 1);
  if (!none && transitions.shape != shape)
    throw parse_error(file, "transitions", "shape {} is not [layers - 1, experts, experts] = {}",
                      to_text(transitions.shape), to_text(shape));
  require_loads(loads.values, file, "loads");
  require_loads(transitions.values, file, "transitions");
  return RoutingProfile(static_cast<int>(layers), static_cast<int>(experts), std::move(loads.values),
                        std::move(transitions.values));
}

// Throws if the format or the sizes in the file do not agree with its loads.
void require_agreement(const JsonField& json, const IntArray& loads) {
  const auto format = json.find("format");
  if (format && (*format)->is_string() && (*format)->get<std::string>().starts_with("evenkeel."))
    require_format(json, profile_format);
  const char* const keys[] = {"num_layers", "num_experts"};
  for (std::size_t i = 0; i < 2; ++i)
    if (const auto said = json.find(keys[i]); said && said->integer() != loads.shape[i])
      said->fail("is {}, but the loads have {}", said->integer(), loads.shape[i]);
}

// Writes row by row, since the text of transitions may be larger than memory.
void write_rows(AtomicFile& file, std::span<const std::int64_t> values, std::size_t width) {
  for (std::size_t at = 0; at < values.size(); at += width)
    file.write(fmt::format("{}[{}]", at == 0 ? "[" : ",", fmt::join(values.subspan(at, width), ",")));
  file.write("]");
}

void write_profile_json(const RoutingProfile& profile, const std::string& path) {
  const std::size_t experts = static_cast<std::size_t>(profile.num_experts());
  AtomicFile file(path);
  file.write(fmt::format(R"({{"format":"{}",)", profile_format));
  if (profile.layers().known())
    file.write(fmt::format(R"("layers":[{}],)", fmt::join(profile.layers().numbers(), ",")));
  file.write(R"("loads":)");
  write_rows(file, profile.loads(), experts);
  file.write(fmt::format(R"(,"num_experts":{},"num_layers":{})", experts, profile.num_layers()));
  if (profile.has_transitions()) file.write(R"(,"transitions":[)");
  for (int layer = 0; profile.has_transitions() && layer + 1 < profile.num_layers(); ++layer) {
    if (layer > 0) file.write(",");
    write_rows(file, profile.transitions(LayerId(layer)), experts);
  }
  file.write(profile.has_transitions() ? "]}\n" : "}\n");
  file.commit();
}

}  // namespace

RoutingProfile internal::profile_of_arrays(const ArrayFile& file) {
  require_format(file, profile_format);
  IntArray loads = read_integers(file, "loads");
  if (loads.shape.size() != 2 || loads.shape[0] < 1 || loads.shape[1] < 1 ||
      loads.shape[1] > max_trace_experts || loads.shape[0] > max_trace_assignments_per_token)
    throw parse_error(file.name(), "loads", "shape {} is not [layers, experts]", to_text(loads.shape));
  IntArray transitions;
  if (file.find("transitions") != nullptr) transitions = read_integers(file, "transitions");
  RoutingProfile profile = make_profile(file.name(), std::move(loads), std::move(transitions));
  profile.set_layers(layers_in(file, profile.num_layers()));
  return profile;
}

RoutingProfile internal::profile_of_json(const Json& json, const std::string& file) {
  const JsonField fields(json, file);
  const JsonField stated = fields["loads"];
  if (has_fractions(*stated))
    stated.fail(
        "has numbers that are not whole, but a profile has counts; write averages as "
        "{{\"logical_count\": [[...]]}} or as lists without a name");
  IntArray loads = nested_integers(*stated, 2, file, "loads");
  if (loads.shape[0] < 1 || loads.shape[1] < 1)
    stated.fail("is empty; it must be a list by layer of lists by expert");
  if (loads.shape[1] > max_trace_experts)
    stated.fail("has {} experts; allowed: 1..{}", loads.shape[1], max_trace_experts);
  require_agreement(fields, loads);
  IntArray transitions;
  if (const auto found = fields.stated("transitions"))
    transitions = nested_integers(**found, 3, file, "transitions");
  RoutingProfile profile = make_profile(file, std::move(loads), std::move(transitions));
  profile.set_layers(layers_in(json, profile.num_layers(), file));
  return profile;
}

RoutingProfile read_profile(const ByteSource& source) {
  if (detect_format(source) == FileFormat::json) return profile_of_json(read_json(source), source.name());
  return profile_of_arrays(*open_array_file(source));
}

void write_profile(const RoutingProfile& profile, const std::string& path, FileFormat format) {
  if (format == FileFormat::json) return write_profile_json(profile, path);
  if (format == FileFormat::npy)
    throw InvalidArgument(path, "a profile is not written as npy", "safetensors, npz or json");
  const std::int64_t layers = profile.num_layers();
  const std::int64_t experts = profile.num_experts();
  std::vector<ArrayToWrite> arrays{integers_to_write("loads", {layers, experts}, profile.loads())};
  if (profile.has_transitions())
    arrays.push_back(integers_to_write("transitions", {layers - 1, experts, experts}, profile.transitions()));
  if (profile.layers().known()) arrays.push_back(layers_to_write(profile.layers()));
  write_arrays(arrays, {{"format", std::string(profile_format)}}, path, format);
}

}  // namespace evenkeel
