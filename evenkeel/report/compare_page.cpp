// The page of `evenkeel compare`: plain EP and the method that gains the most.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "evenkeel/report/compare.h"
#include "evenkeel/report/internal/html_page.h"

namespace evenkeel {

namespace {

using internal::column;
using internal::drawn;
using internal::Json;
using internal::or_null;

// Limits that keep a page small.
constexpr std::size_t kMostSteps = 512;
constexpr std::size_t kMostRanks = 128;
constexpr std::size_t kMostInHistogram = 8192;

class ComparePage {
 public:
  ComparePage(const ComparedRecordings& all, const PageOrigin& origin)
      : all_(all), comparison_(all.comparison), after_(best()), page_(internal::page_of(title(), origin)) {}

  Json made() {
    for (const std::string& note : all_.notes) page_["notes"].push_back(note);
    page_["filters"] = {{"layers", layer_labels()}};
    if (heat_has_steps())
      page_["filters"]["steps"] = {comparison_.first_judged,
                                   comparison_.first_judged + comparison_.num_steps - 1};
    Json& sections = page_["sections"];
    sections = Json::array({tiles(), methods(), histogram(), heat()});
    if (comparison_.num_steps > 1) sections.push_back(band());
    if (comparison_.has_bytes) {
      sections.push_back(matrix());
      sections.push_back(memory());
    }
    sections.push_back(plan());
    sections.push_back(sentences());
    return std::move(page_);
  }

 private:
  // The method with the largest gain among those that pay; the last one if none pays.
  std::size_t best() const {
    std::size_t best = all_.summaries.size() - 1;
    const auto gain = [&](std::size_t m) {
      const MethodSummary& sum = all_.summaries[m];
      return sum.answer == MethodSummary::Answer::pays ? sum.speedup.value_or(0) : 0;
    };
    for (std::size_t m = 1; m < all_.summaries.size(); ++m)
      if (gain(m) > gain(best)) best = m;
    return best;
  }
  std::string title() const {
    return fmt::format("{} on {} ranks in {} node{}",
                       std::filesystem::path(all_.recordings.front()).filename().string(),
                       all_.machine.topology.num_ranks(), all_.machine.topology.num_nodes(),
                       all_.machine.topology.num_nodes() == 1 ? "" : "s");
  }
  const MethodResult& result(std::size_t m) const { return comparison_.methods[m]; }
  const std::string& name(std::size_t m) const { return result(m).method.name; }
  // Plain EP, and the other method if there is one.
  std::vector<std::size_t> both() const {
    return after_ == 0 ? std::vector<std::size_t>{0} : std::vector<std::size_t>{0, after_};
  }
  Json layer_labels() const {
    Json labels = Json::array();
    for (int row = 0; row < all_.num_layers; ++row)
      labels.push_back(fmt::format("{}", all_.layers.number_of(row)));
    return labels;
  }
  // n, if only every n-th step is drawn.
  std::size_t every() const {
    return internal::pool_of(static_cast<std::size_t>(comparison_.num_steps), kMostSteps);
  }
  template <class Field>
  std::vector<double> drawn_steps(std::size_t m, Field field) const {
    std::vector<double> values;
    for (const StepFigures& step : result(m).steps) values.push_back(static_cast<double>(step.*field));
    return internal::pooled(values, every());
  }

  Json tiles() const {
    const MethodSummary &before = all_.summaries[0], &after = all_.summaries[after_];
    Json tiles = Json::array();
    const auto add = [&](const char* label, const Json& was, const Json& is, const char* unit) {
      if (!is.is_null()) tiles.push_back(internal::tile(label, was, is, unit));
    };
    add("max/mean load, median step", before.max_over_mean.median, after.max_over_mean.median, "ratio");
    add("max/mean load, step at 95 %", before.max_over_mean.p95, after.max_over_mean.p95, "ratio");
    add("max/mean load, step at 99 %", before.max_over_mean.p99, after.max_over_mean.p99, "ratio");
    if (after.seconds) {
      add("MoE layers of a step, median", before.seconds->median * 1e3, after.seconds->median * 1e3, "ms");
      add("MoE layers of a step, at 95 %", before.seconds->p95 * 1e3, after.seconds->p95 * 1e3, "ms");
    }
    add("between nodes, a step", or_null(before.bytes_across), or_null(after.bytes_across), "bytes");
    add("within nodes, a step", or_null(before.bytes_within), or_null(after.bytes_within), "bytes");
    add("peak of the fullest rank", or_null(before.peak_bytes), or_null(after.peak_bytes), "bytes");
    add("steps that do not fit", or_null(before.steps_over_budget), or_null(after.steps_over_budget),
        "count");
    add("weights that travel, a step", before.transfers, after.transfers, "count");
    if (after.moved_bytes > 0) add("experts that move to new homes, a step", 0, after.moved_bytes, "bytes");
    return {
        {"kind", "tiles"},
        {"id", "verdict"},
        {"title", "Verdict"},
        {"verdict", {fmt::format("{} against ep: {}", name(after_), text_of(after.answer)), after.sentence}},
        {"before", "ep"},
        {"after", name(after_)},
        {"tiles", std::move(tiles)}};
  }

  Json methods() const {
    Json rows = Json::array();
    for (std::size_t m = 0; m < all_.summaries.size(); ++m) {
      const MethodSummary& sum = all_.summaries[m];
      Json row = {{"name", name(m)},
                  {"median", sum.max_over_mean.median},
                  {"p95", sum.max_over_mean.p95},
                  {"p99", sum.max_over_mean.p99},
                  {"worst", sum.max_over_mean.worst},
                  {"speedup", or_null(sum.speedup)},
                  {"ideal", or_null(sum.share_of_ideal)},
                  {"within", or_null(sum.bytes_within)},
                  {"across", or_null(sum.bytes_across)},
                  {"transfers", sum.transfers},
                  {"peak", or_null(sum.peak_bytes)},
                  {"over", or_null(sum.steps_over_budget)},
                  {"answer", m == 0 ? std::string() : text_of(sum.answer)}};
      if (sum.seconds) row.update({{"ms", sum.seconds->median * 1e3}, {"ms95", sum.seconds->p95 * 1e3}});
      rows.push_back(std::move(row));
    }
    Json columns = Json::array({column("name", "method"), column("answer", "verdict")});
    const auto add = [&](bool known, const char* key, const char* label, const char* unit) {
      if (known) columns.push_back(column(key, label, unit));
    };
    const bool sized = comparison_.has_bytes, timed = comparison_.has_seconds;
    add(true, "speedup", "against ep", "ratio");
    add(all_.machine.budget.has_value(), "over", "do not fit", "count");
    add(sized, "peak", "peak", "bytes");
    add(true, "median", "max/mean, median", "ratio");
    add(true, "p95", "95 %", "ratio");
    add(true, "worst", "worst", "ratio");
    add(timed, "ms", "step, median", "ms");
    add(timed, "ms95", "95 %", "ms");
    add(sized, "across", "between nodes", "bytes");
    add(sized, "within", "within nodes", "bytes");
    add(true, "transfers", "weights moved", "count");
    add(true, "ideal", "of ideal", "share");
    add(true, "p99", "max/mean, 99 %", "ratio");
    return {
        {"kind", "table"},
        {"id", "methods"},
        {"title", "All methods"},
        {"caption",
         "Figures per step. Bytes and weights are means over all steps; steps that do not fit are a count."},
        {"columns", std::move(columns)},
        {"rows", std::move(rows)}};
  }

  Json histogram() const {
    Json series = Json::array();
    for (const std::size_t m : both()) {
      std::vector<double> levels;
      for (std::size_t i = 0; i < result(m).steps.size(); i += 1 + result(m).steps.size() / kMostInHistogram)
        levels.push_back(result(m).steps[i].max_over_mean);
      series.push_back({{"name", name(m)}, {"values", drawn(levels)}});
    }
    Json section = {
        {"kind", "histogram"},  {"id", "levels"}, {"title", "How uneven steps are"}, {"unit", "ratio"},
        {"x", "max/mean load"}, {"y", "steps"},   {"series", std::move(series)}};
    if (result(0).steps.size() > kMostInHistogram)
      section["caption"] = "Only some of the steps, evenly spread.";
    return section;
  }

  bool heat_has_steps() const {
    return static_cast<int>(result(0).heat.front().size()) == comparison_.num_steps;
  }
  Json heat() const {
    Json panels = Json::array();
    for (const std::size_t m : both()) {
      Json rows = Json::array();
      for (const std::vector<double>& row : result(m).heat) rows.push_back(drawn(row));
      panels.push_back({{"name", name(m)}, {"values", std::move(rows)}});
    }
    const std::size_t runs = result(0).heat.front().size();
    const bool are_steps = heat_has_steps();
    return {{"kind", "heat"},
            {"id", "layers"},
            {"title", "Where it is uneven"},
            {"caption", are_steps ? "max/mean load of each layer in each step."
                                  : "max/mean load of each layer, averaged over equal runs of steps."},
            {"unit", "ratio"},
            {"row", "layer"},
            {"column", are_steps ? "step" : "run of steps"},
            {"rows", layer_labels()},
            {"columns", runs},
            {"first", are_steps ? comparison_.first_judged : 0},
            {"least", 1},
            {"panels", std::move(panels)}};
  }

  Json band() const {
    Json panels = Json::array();
    for (const std::size_t m : both())
      panels.push_back({{"name", name(m)},
                        {"least", drawn(drawn_steps(m, &StepFigures::load_least))},
                        {"median", drawn(drawn_steps(m, &StepFigures::load_median))},
                        {"p95", drawn(drawn_steps(m, &StepFigures::load_p95))},
                        {"most", drawn(drawn_steps(m, &StepFigures::load_most))}});
    return {{"kind", "band"},
            {"id", "ranks"},
            {"title", "Load of ranks over steps"},
            {"caption", "Load summed over all layers, relative to the mean of the ranks."},
            {"unit", "ratio"},
            {"x", "step"},
            {"y", "load / mean"},
            {"first", comparison_.first_judged},
            {"every", every()},
            {"line", {{"y", 1}, {"label", "mean"}}},
            {"panels", std::move(panels)}};
  }

  Json matrix() const {
    const auto ranks = static_cast<std::size_t>(comparison_.shape.ranks),
               groups = static_cast<std::size_t>(comparison_.shape.groups);
    const std::size_t shown = std::min(ranks * groups, kMostRanks);
    Json panels = Json::array();
    for (const std::size_t m : both()) {
      Json rows = Json::array();
      for (std::size_t from = 0; from < shown; ++from) {
        const std::vector<double>& bytes = result(m).pair_bytes[from / ranks];
        Json row = Json::array();
        for (std::size_t to = 0; to < shown; ++to)
          row.push_back(from / ranks != to / ranks
                            ? Json(0)
                            : drawn(bytes[from % ranks * ranks + to % ranks] / comparison_.num_steps));
        rows.push_back(std::move(row));
      }
      panels.push_back({{"name", name(m)}, {"values", std::move(rows)}});
    }
    std::string caption = "Bytes of rows, results and weights per step, over all layers; mean over steps.";
    if (shown < ranks * groups)
      caption += fmt::format(" The first {1} of {0} ranks are shown.", ranks * groups, shown);
    return {{"kind", "matrix"},
            {"id", "pairs"},
            {"title", "Who sends to whom"},
            {"caption", caption},
            {"unit", "bytes"},
            {"row", "from rank"},
            {"column", "to rank"},
            {"panels", std::move(panels)}};
  }

  Json memory() const {
    Json panels = Json::array();
    for (const std::size_t m : both()) {
      const StepBytes& fullest = result(m).picture.fullest;
      if (fullest.points.empty()) continue;
      Json marks = Json::array({{{"at", 0}, {"label", "forward"}}});
      if (all_.machine.backward) marks.push_back({{"at", fullest.backward}, {"label", "backward"}});
      Json series = {{"name", name(m)}, {"values", drawn(fullest.points)}};
      panels.push_back({{"name", fmt::format("{}, rank {}", name(m), fullest.rank)},
                        {"series", Json::array({std::move(series)})},
                        {"marks", std::move(marks)}});
    }
    Json section = {{"kind", "memory"},
                    {"id", "memory"},
                    {"title", "Memory over a step"},
                    {"caption", of_picture("Bytes of the fullest rank, from point to point:")},
                    {"x", "chunks begin and end"},
                    {"panels", std::move(panels)}};
    if (all_.machine.budget) section["budget"] = *all_.machine.budget;
    return section;
  }

  // Both pictures show the layer and step that is least even under plain EP.
  std::string of_picture(const char* what) const {
    const PlanPicture& picture = result(0).picture;
    return fmt::format("{} layer {} of step {}, the least even one.", what,
                       all_.layers.number_of(picture.layer), picture.step);
  }

  Json plan() const {
    const auto ranks = static_cast<std::size_t>(comparison_.shape.ranks), shown = std::min(ranks, kMostRanks);
    Json panels = Json::array();
    for (const std::size_t m : both()) {
      const PlanPicture& picture = result(m).picture;
      if (picture.at.empty()) continue;
      Json bars = Json::array(), transfers = Json::array();
      for (std::size_t rank = 0; rank < shown; ++rank) {
        Json parts = Json::array();
        for (std::size_t owner = 0; owner < ranks; ++owner)
          if (const std::int64_t load = picture.at[rank * ranks + owner]; load > 0)
            parts.push_back({{"owner", owner}, {"value", load}});
        bars.push_back({{"rank", rank}, {"parts", std::move(parts)}});
      }
      for (const Transfer& transfer : picture.transfers)
        transfers.push_back({{"from", transfer.from.value()},
                             {"to", transfer.to.value()},
                             {"what", fmt::format("expert {}", transfer.expert.value())}});
      panels.push_back({{"name", name(m)}, {"ranks", std::move(bars)}, {"transfers", std::move(transfers)}});
    }
    return {{"kind", "plan"},
            {"id", "plan"},
            {"title", "Who computes what"},
            {"caption", of_picture("Assignments by rank, and by the rank whose experts they are:")},
            {"unit", "count"},
            {"panels", std::move(panels)}};
  }

  Json sentences() const {
    Json paragraphs = Json::array();
    for (std::size_t m = 0; m < all_.summaries.size(); ++m)
      paragraphs.push_back(
          fmt::format("{} ({}): {}", name(m), result(m).method.description(), all_.summaries[m].sentence));
    return {{"kind", "notes"},
            {"id", "sentences"},
            {"title", "Each method"},
            {"paragraphs", std::move(paragraphs)}};
  }

  const ComparedRecordings& all_;
  const Comparison& comparison_;
  std::size_t after_;
  Json page_;
};

}  // namespace

std::string to_html(const ComparedRecordings& compared, const PageOrigin& origin) {
  return internal::html_page(ComparePage(compared, origin).made());
}

}  // namespace evenkeel
