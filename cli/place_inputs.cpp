#include "cli/place_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "cli/file_options.h"
#include "evenkeel/base/error.h"
#include "evenkeel/placement/traffic.h"

namespace evenkeel::cli {

namespace {

SourceCounts sum_of(std::vector<SourceCounts> all) {
  for (std::size_t i = 1; i < all.size(); ++i)
    std::ranges::transform(all[0].counts, all[i].counts, all[0].counts.begin(), std::plus());
  return std::move(all.front());
}

// Before anything is placed or written.
void require_fits(const RecordedRouting& judge, const PlaceInputs& placed) {
  const RoutingProfile& first = placed.first();
  if (judge.profile.num_experts() != first.num_experts())
    throw InvalidArgument("--judge",
                          fmt::format("{} has {} experts", judge.name, judge.profile.num_experts()),
                          fmt::format("{}, as {} has", first.num_experts(), placed.names.front()));
  paired_rows(judge.rows(), {placed.names.front(), placed.layers(), first.num_layers()}, "--judge");
}

}  // namespace

LayerNumbers PlaceInputs::layers() const {
  const auto known = std::ranges::find_if(
      profiles(), [](const RoutingProfile& profile) { return profile.layers().known(); });
  return known == profiles().end() ? LayerNumbers() : known->layers();
}

std::int64_t PlaceInputs::num_assignments() const {
  std::int64_t sum = 0;
  for (const RoutingProfile& profile : profiles())
    sum += std::reduce(profile.loads().begin(), profile.loads().end(), std::int64_t{0});
  return sum;
}

PlaceInputs read_files(const std::vector<std::string>& paths, const RoutingOptions& options, int num_ranks) {
  std::vector<SourceCounts> sources;
  PlaceInputs all{.names = paths, .files = {}, .recordings = {}, .sources = {}};
  all.recordings =
      read_recordings(paths, options, "PROFILE", [&](const RecordedRouting& one, RoutingFile& file) {
        if (file.trace && !options.transitions) sources.push_back(source_counts(*file.trace, num_ranks));
        say_notes(one.name, one.notes);
      });
  if (sources.size() == paths.size()) all.sources = sum_of(std::move(sources));
  for (RecordedRouting& each : all.recordings)
    each.profile =
        all.files.emplace_back(std::exchange(each.profile, RoutingProfile())).without_transitions();
  return all;
}

PlaceInputs read_file_of_steps(const std::string& path, const RoutingOptions& options,
                               std::optional<std::int64_t> step_tokens) {
  PlaceInputs all{
      .names = {}, .files = {}, .recordings = {read_steps(path, options, step_tokens)}, .sources = {}};
  say_notes(path, all.recordings.front().notes);
  for (std::size_t step = 0; step < all.profiles().size(); ++step)
    all.names.push_back(fmt::format("{}: step {}", path, step));
  return all;
}

std::vector<RecordedRouting> read_judges(const std::vector<std::string>& paths, RoutingOptions options,
                                         const PlaceInputs& placed) {
  options.transitions = true;  // where tokens live has no part in judging
  std::vector<RecordedRouting> judges;
  for (const std::string& path : paths) {
    judges.push_back(read_recording_of_some_layers(path, options));
    say_notes(path, judges.back().notes);
  }
  for (const RecordedRouting& judge : judges) require_fits(judge, placed);
  return judges;
}

}  // namespace evenkeel::cli
