// The buffers that a rank held during a step, for people and for programs.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <vector>

#include "evenkeel/base/bytes.h"
#include "evenkeel/report/internal/figures.h"

namespace evenkeel::internal {

namespace {

using Lent = StepRecord::Lent;

constexpr std::size_t kWidth = 84;
constexpr std::int64_t kHeight = 10;
constexpr std::size_t kMostNames = 8;
constexpr std::array<std::string_view, 9> kEighths = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr std::string_view kMarks = "pdtxc";  // by phase

Json json_of(const std::optional<StepMoment>& moment) {
  if (!moment) return {{"pass", nullptr}, {"phase", nullptr}, {"chunk", nullptr}};
  return {{"pass", moment->backward ? "backward" : "forward"},
          {"phase", name_of(moment->phase)},
          {"chunk", moment->chunk < 0 ? Json(nullptr) : Json(moment->chunk)}};
}

// A column of the picture: the point with most in use among those it stands for.
std::vector<std::size_t> columns_of(const StepRecord& record) {
  const std::size_t points = record.in_use.size();
  const std::size_t width = points > kWidth ? kWidth : points * (kWidth / points);
  std::vector<std::size_t> columns;
  for (std::size_t column = 0; column < width; ++column) {
    const auto first = static_cast<std::ptrdiff_t>(column * points / width);
    const auto end = std::max(first + 1, static_cast<std::ptrdiff_t>((column + 1) * points / width));
    const auto most = std::max_element(record.in_use.begin() + first, record.in_use.begin() + end);
    columns.push_back(static_cast<std::size_t>(most - record.in_use.begin()));
  }
  return columns;
}

std::optional<StepMoment> moment_at(const StepRecord& record, std::size_t point) {
  const auto after = std::ranges::upper_bound(record.stretches, point, {}, &StepRecord::Stretch::begin);
  if (after == record.stretches.begin()) return std::nullopt;
  return std::prev(after)->moment;
}

std::string line(const std::string& label, std::string_view edge, std::string text) {
  text.erase(text.find_last_not_of(' ') + 1);
  std::string all = fmt::format("  {:>10} {}{}", label, edge, text);
  all.erase(all.find_last_not_of(' ') + 1);
  return all + "\n";
}

std::string area(const StepRecord& record, const std::vector<std::size_t>& columns, std::int64_t top) {
  const std::int64_t peak = record.peak_bytes();
  const auto eighths = [&](std::int64_t bytes) {
    return bytes == 0 ? 0 : std::max<std::int64_t>(1, (bytes * kHeight * 8 + top / 2) / top);
  };
  const std::int64_t peak_row = (eighths(peak) - 1) / 8;
  std::string text;
  for (std::int64_t row = kHeight - 1; row >= 0; --row) {
    std::string cells;
    for (const std::size_t point : columns) {
      const std::int64_t filled = eighths(record.in_use[point]) - 8 * row;
      cells += kEighths[static_cast<std::size_t>(std::clamp<std::int64_t>(filled, 0, 8))];
    }
    text += line(row == peak_row ? format_bytes(peak) : "", row == peak_row ? "┤" : "│", cells);
  }
  return text;
}

// Words at the columns where they begin, as far as they do not run into each other.
std::string labels(std::size_t width, const std::vector<std::pair<std::size_t, std::string>>& words) {
  std::string text;
  for (const auto& [column, word] : words) {
    if ((!text.empty() && column <= text.size()) || column + word.size() > width) continue;
    text.append(column - text.size(), ' ');
    text += word;
  }
  return text;
}

std::string phases(const StepRecord& record, const std::vector<std::size_t>& columns) {
  std::string marks;
  std::vector<std::pair<std::size_t, std::string>> chunks, passes;
  std::optional<StepMoment> before;
  bool in_chunks = false;
  for (std::size_t column = 0; column < columns.size(); ++column) {
    const auto moment = moment_at(record, columns[column]);
    marks += moment ? kMarks[static_cast<std::size_t>(moment->phase)] : ' ';
    if (!moment) continue;
    const bool new_pass = !before || before->backward != moment->backward;
    if (new_pass) passes.emplace_back(column, moment->backward ? "backward" : "forward");
    if (moment->chunk >= 0 && (new_pass || before->chunk != moment->chunk))
      chunks.emplace_back(column, fmt::format("{}", moment->chunk));
    in_chunks = in_chunks || moment->chunk > 0;
    before = moment;
  }
  std::string text = line("phase", " ", marks);
  if (in_chunks) text += line("chunk", " ", labels(columns.size(), chunks));
  return text + line("pass", " ", labels(columns.size(), passes));
}

std::string scale_of(const StepRecord& record, std::size_t columns) {
  const std::size_t points = record.in_use.size();
  if (columns == points) return "a column for each buffer that comes or goes";
  if (columns > points) return fmt::format("{} columns for each that comes or goes", columns / points);
  return fmt::format("a column for {:.1f} buffers that come or go",
                     static_cast<double>(points) / static_cast<double>(columns));
}

std::string where(const std::optional<StepMoment>& moment) {
  if (!moment) return "before the step";
  const std::string chunk = moment->chunk < 0 ? "" : fmt::format(", chunk {}", moment->chunk);
  return fmt::format("in {}, {}{}", moment->backward ? "backward" : "forward", name_of(moment->phase), chunk);
}

struct Named {
  std::string name;
  std::int64_t bytes = 0;
  int buffers = 0;
};

// Buffers that are alive at a point, by name, the largest first; small ones together.
std::vector<Named> alive_at(const StepRecord& record, std::size_t point) {
  std::map<std::string_view, Named> by_name;
  for (const Lent& lent : record.buffers) {
    if (point < lent.begin || point >= lent.end) continue;
    Named& named = by_name[lent.loan.name];
    named.name = lent.loan.name;
    named.bytes += lent.loan.bytes;
    ++named.buffers;
  }
  std::vector<Named> all;
  for (auto& [name, named] : by_name) all.push_back(std::move(named));
  std::ranges::stable_sort(all, std::ranges::greater(), &Named::bytes);
  if (all.size() <= kMostNames + 1) return all;
  Named rest{fmt::format("{} smaller", all.size() - kMostNames)};
  for (std::size_t i = kMostNames; i < all.size(); ++i) rest.bytes += all[i].bytes;
  all.resize(kMostNames);
  all.push_back(rest);
  return all;
}

std::string legend(const StepRecord& record) {
  const std::size_t point = record.peak_point();
  const std::int64_t peak = record.peak_bytes();
  std::string text = fmt::format("  alive at the peak, {}:\n", where(moment_at(record, point)));
  for (const Named& named : alive_at(record, point)) {
    const std::string name =
        named.buffers > 1 ? fmt::format("{} ({})", named.name, named.buffers) : named.name;
    text += fmt::format("    {:<30} {:>10} {:>4.0f} %  {}\n", name, format_bytes(named.bytes),
                        100 * static_cast<double>(named.bytes) / static_cast<double>(peak),
                        bar(named.bytes, peak, 40));
  }
  return text + fmt::format("    {:<30} {:>10}  {} bytes\n", "together", format_bytes(peak), peak);
}

}  // namespace

Json json_of(const RankTimeline& timeline) {
  const StepRecord& record = timeline.record;
  Json phases = Json::array();
  for (const StepRecord::Stretch& stretch : record.stretches) {
    Json phase = {{"begin", stretch.begin}};
    phase.update(json_of(std::optional(stretch.moment)));
    phases.push_back(std::move(phase));
  }
  Json buffers = Json::array();
  for (const Lent& lent : record.buffers) {
    Json buffer = {{"name", lent.loan.name}, {"bytes", lent.loan.bytes}};
    buffer.update(json_of(lent.moment));
    buffer.update({{"begin", lent.begin}, {"end", lent.end}});
    buffers.push_back(std::move(buffer));
  }
  return {{"rank", timeline.rank},
          {"in_use", record.in_use},
          {"phases", std::move(phases)},
          {"buffers", std::move(buffers)}};
}

std::string timeline_picture(const RankTimeline& timeline, const std::string& planner, const Budget& budget) {
  const StepRecord& record = timeline.record;
  const std::int64_t peak = record.peak_bytes();
  std::string text = fmt::format("  memory of rank {} under {} in one step: at most {}", timeline.rank,
                                 planner, format_bytes(peak));
  if (budget.is_given()) text += fmt::format(" of a budget of {}", format_bytes(budget.bytes));
  text += '\n';
  if (peak == 0) return text;

  const std::vector<std::size_t> columns = columns_of(record);
  const bool draws_budget = budget.is_given() && budget.bytes <= 2 * peak;
  if (draws_budget) {
    std::string dashes;
    for (std::size_t i = 0; i < columns.size(); ++i) dashes += "┄";
    text += line(format_bytes(budget.bytes), "┄", dashes);
  }
  text += area(record, columns, draws_budget ? budget.bytes : peak);
  text += phases(record, columns);
  text +=
      "  p plan, d dispatch, t transfer, x compute, c combine; " + scale_of(record, columns.size()) + "\n";
  return text + legend(record);
}

}  // namespace evenkeel::internal
