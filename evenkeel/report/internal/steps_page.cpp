#include "evenkeel/report/internal/steps_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "evenkeel/placement/evaluate/blocks.h"
#include "evenkeel/report/internal/numbers.h"

namespace evenkeel::internal {

namespace {

// Limits that keep a page small.
constexpr std::size_t kMostDrawn = 4;            // recordings
constexpr std::size_t kMostColumns = 256;        // per heat map
constexpr std::size_t kMostLayerNumbers = 4096;  // layers x columns; with more, layers have no bands

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// Rank loads relative to their mean, by step.
struct Band {
  std::vector<double> least, median, p95, most;

  void add(std::vector<double> loads) {
    std::ranges::sort(loads);
    least.push_back(loads.front());
    median.push_back(quantile(loads, 0.5));
    p95.push_back(quantile(loads, 0.95));
    most.push_back(loads.back());
  }
  // Pools several steps into one column, which shows the lowest `least` and the highest of the other values.
  Json json(std::size_t pool) const {
    const auto lowest = [&] {
      std::vector<double> negated(least);
      std::ranges::transform(negated, negated.begin(), std::negate());
      negated = pooled(negated, pool);
      std::ranges::transform(negated, negated.begin(), std::negate());
      return negated;
    };
    return {{"least", drawn(lowest())},
            {"median", drawn(pooled(median, pool))},
            {"p95", drawn(pooled(p95, pool))},
            {"most", drawn(pooled(most, pool))}};
  }
};

// The steps of one recording under one placement.
struct Steps {
  std::vector<double> levels;               // max/mean of each step, averaged over layers
  std::vector<std::vector<double>> ratios;  // max/mean [layers][steps]
  Band all;                                 // rank loads summed over all layers
  std::vector<Band> by_layer;
};

double ratio_of(const std::vector<double>& loads, const Topology& topology) {
  return std::ranges::max(loads) > 0 ? max_over_mean(loads, topology) : kNone;
}

// Divides each load by the mean load. Clears `loads` if the layer has no load.
void over_mean(std::vector<double>& loads) {
  const double mean = mean_of(loads);
  for (double& load : loads) load = mean > 0 ? load / mean : 0;
}

Steps steps_of(const Recording& recording, const NamedPlacement& placement, const Topology& topology) {
  const ServedPlacement served = placement.served_on(recording, topology);
  const auto layers = static_cast<std::size_t>(recording.profile.num_layers());
  Steps steps;
  steps.ratios.resize(layers);
  steps.by_layer.resize(layers);
  for (const RoutingProfile& step : recording.steps) {
    std::vector<double> of_step;
    for (LayerId layer : indices<LayerId>(layers)) {
      std::vector<double> loads = rank_loads(step, served.homes, served.shares, layer);
      steps.ratios[layer.offset()].push_back(ratio_of(loads, topology));
      over_mean(loads);
      of_step.insert(of_step.end(), loads.begin(), loads.end());
      steps.by_layer[layer.offset()].add(std::move(loads));
    }
    steps.levels.push_back(level_of(step, topology, served).value_or(kNone));
    steps.all.add(std::move(of_step));
  }
  return steps;
}

Json labels_of(const Recording& recording) {
  Json labels = Json::array();
  for (int row = 0; row < recording.profile.num_layers(); ++row)
    labels.push_back(fmt::format("{}", recording.profile.layers().number_of(row)));
  return labels;
}

Json columns_of(std::size_t steps, std::size_t pool) {
  Json columns = Json::array();
  for (std::size_t step = 0; step < steps; step += pool) columns.push_back(step);
  return columns;
}

Json heat_of(const Steps& steps, const std::string& name, std::size_t pool) {
  Json rows = Json::array();
  for (const std::vector<double>& of_layer : steps.ratios) rows.push_back(drawn(pooled(of_layer, pool)));
  return {{"name", name}, {"values", std::move(rows)}};
}

// True if every layer gets its own band. Too many bands would make the page large.
bool has_layer_bands(std::size_t layers, std::size_t steps, std::size_t pool) {
  return layers * ((steps + pool - 1) / pool) <= kMostLayerNumbers;
}

void add_bands(Json& panels, const Steps& steps, const std::string& name, const Json& labels,
               std::size_t pool) {
  const auto add = [&](const Band& band, const std::string& title, const Json& layer) {
    Json panel = {{"name", title}};
    if (!layer.is_null()) panel["layer"] = layer;
    panel.update(band.json(pool));
    panels.push_back(std::move(panel));
  };
  add(steps.all, name, nullptr);
  if (!has_layer_bands(labels.size(), steps.levels.size(), pool)) return;
  for (std::size_t row = 0; row < labels.size(); ++row)
    add(steps.by_layer[row], fmt::format("{}, layer {}", name, labels[row].get<std::string>()), labels[row]);
}

class RecordingSections {
 public:
  RecordingSections(Json& page, const Recording& recording, std::size_t index, bool alone,
                    const TwoPlacements& placements)
      : sections_(page["sections"]),
        recording_(recording),
        id_(alone ? "" : fmt::format("-{}", index + 1)),
        in_(alone ? "" : fmt::format(", {}", recording.name)),
        placements_(placements) {}

  void add_layers() {
    const Topology& topology = placements_.topology;
    Json series = Json::array();
    for (const NamedPlacement* placement : {&placements_.before, &placements_.after}) {
      const ServedPlacement served = placement->served_on(recording_, topology);
      Json points = Json::array();
      for (LayerId layer : indices<LayerId>(recording_.profile.num_layers()))
        points.push_back(
            {recording_.profile.layers().number_of(layer.value()),
             drawn(ratio_of(rank_loads(recording_.profile, served.homes, served.shares, layer), topology))});
      series.push_back({{"name", placement->name}, {"points", std::move(points)}});
    }
    add("curves", "by-layer", "Layers over the whole recording",
        "Load of the fullest rank in each layer, relative to the mean of the ranks. 1 is even.",
        {{"x", {{"label", "layer"}, {"whole", true}}},
         {"y", {{"label", "max/mean load"}, {"unit", "ratio"}}},
         {"line", {{"y", 1}, {"label", "even"}}},
         {"panels", Json::array({{{"name", ""}, {"series", std::move(series)}}})}});
  }

  void add_steps() {
    const std::size_t count = recording_.steps.size();
    const std::size_t pool = pool_of(count, kMostColumns);
    const Json labels = labels_of(recording_);
    Json spread = Json::array(), heat = Json::array(), bands = Json::array();
    for (const NamedPlacement* placement : {&placements_.before, &placements_.after}) {
      const Steps steps = steps_of(recording_, *placement, placements_.topology);
      spread.push_back({{"name", placement->name}, {"values", drawn(steps.levels)}});
      heat.push_back(heat_of(steps, placement->name, pool));
      add_bands(bands, steps, placement->name, labels, pool);
    }
    const std::string columns = pool == 1 ? "" : fmt::format(" A column shows the worst of {} steps.", pool);
    const std::string layers = has_layer_bands(labels.size(), count, pool)
                                   ? " For all layers, or for the chosen one."
                                   : " Always for all layers.";
    add("histogram", "steps", "How uneven steps are",
        fmt::format("{} by their max/mean load, averaged over layers.",
                    counted(static_cast<std::int64_t>(count), "step", "steps")),
        {{"unit", "ratio"}, {"x", "max/mean load of a step"}, {"y", "steps"}, {"series", std::move(spread)}});
    add("heat", "layers", "Layers and steps",
        "How far the fullest rank of a layer is above the mean, in each step. 1 is even." + columns,
        {{"unit", "ratio"},
         {"row", "layer"},
         {"column", "step"},
         {"rows", labels},
         {"columns", columns_of(count, pool)},
         {"least", 1},
         {"panels", std::move(heat)}});
    add("band", "ranks", "Load of ranks over steps",
        "Load of a rank in a layer, relative to the mean of the ranks. The others wait for the rank with the "
        "most." +
            columns + layers,
        {{"unit", "ratio"},
         {"x", "step"},
         {"y", "load / mean load"},
         {"every", pool},
         {"line", {{"y", 1}, {"label", "mean"}}},
         {"panels", std::move(bands)}});
  }

 private:
  void add(const char* kind, const char* id, const std::string& title, const std::string& caption,
           const Json& rest) {
    Json section = {{"kind", kind}, {"id", id + id_}, {"title", title + in_}, {"caption", caption}};
    section.update(rest);
    sections_.push_back(std::move(section));
  }

  Json& sections_;
  const Recording& recording_;
  std::string id_;
  std::string in_;
  const TwoPlacements& placements_;
};

}  // namespace

void add_recordings(Json& page, std::span<const Recording> recordings, const TwoPlacements& placements) {
  std::size_t most_steps = 0;
  for (std::size_t i = 0; i < std::min(recordings.size(), kMostDrawn); ++i) {
    RecordingSections sections(page, recordings[i], i, recordings.size() == 1, placements);
    most_steps = std::max(most_steps, recordings[i].steps.size());
    if (!recordings[i].steps.empty()) sections.add_steps();
    sections.add_layers();
  }
  if (recordings.size() > kMostDrawn)
    page["notes"].push_back(
        fmt::format("{} more recordings are only in the tables", recordings.size() - kMostDrawn));
  if (most_steps > 1)
    page["filters"] = {
        {"layers", labels_of(widest(recordings.first(std::min(recordings.size(), kMostDrawn))))},
        {"steps", Json::array({0, most_steps - 1})}};
}

void add_traffic(Json& page, const PlacementQuality& before, const PlacementQuality& after,
                 const TwoPlacements& placements, const std::string& caption) {
  if (!before.traffic_known || !after.traffic_known || placements.topology.num_ranks() == 1) return;
  const auto panel = [&](const NamedPlacement& placement, const PlacementQuality& quality) -> Json {
    const auto ranks = static_cast<std::size_t>(placements.topology.num_ranks());
    Json rows = Json::array();
    for (std::size_t from = 0; from < ranks; ++from) {
      Json row = drawn(std::span(quality.traffic).subspan(from * ranks, ranks));
      row[from] = nullptr;
      rows.push_back(std::move(row));
    }
    return {{"name", placement.name}, {"values", std::move(rows)}};
  };
  page["sections"].push_back(
      {{"kind", "matrix"},
       {"id", "traffic"},
       {"title", "Who sends to whom"},
       {"caption", caption + " Traffic within a rank is left out."},
       {"unit", "count"},
       {"panels", Json::array({panel(placements.before, before), panel(placements.after, after)})}});
}

}  // namespace evenkeel::internal
