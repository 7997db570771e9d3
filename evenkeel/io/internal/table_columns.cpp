#include "evenkeel/io/internal/table_columns.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <numeric>
#include <span>

#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/limits.h"

namespace evenkeel::internal {

namespace {

using Words = std::span<const std::string_view>;

// These count MoE layers alone, so that they are not the model's numbers.
constexpr std::string_view moe_layer_names[] = {"moe_layer", "moe_layer_id", "moe_layer_idx"};
constexpr std::string_view layer_names[] = {"layer",        "layers",       "layer_id",  "layer_idx",
                                            "layer_index",  "layer_number", "layer_num", "moe_layer",
                                            "moe_layer_id", "moe_layer_idx"};
constexpr std::string_view expert_names[] = {"expert",         "experts",           "expert_id",
                                             "expert_idx",     "expert_index",      "expert_num",
                                             "logical_expert", "logical_expert_id", "logical_expert_idx"};
constexpr std::string_view step_names[] = {"step",       "steps",      "step_id",         "iter",
                                           "iteration",  "iterations", "forward_pass",    "pass",
                                           "pass_id",    "batch",      "forward_pass_id", "forward_pass_no",
                                           "global_step"};
// A time is that of a step, or of what one rank wrote: nobody knows which.
constexpr std::string_view part_names[] = {"rank",    "rank_id",   "source_rank", "ep_rank", "dp_rank",
                                           "tp_rank", "device",    "device_id",   "gpu",     "gpu_id",
                                           "node",    "timestamp", "time"};
constexpr std::string_view index_names[] = {"", "unnamed_0", "index", "row"};
// The count where other columns may be counts too, the first of them that there is.
constexpr std::string_view count_names[] = {
    "count_all_topk", "count",        "counts",   "num_tokens", "token_count",     "tokens",
    "load",           "loads",        "n_tokens", "hits",       "num_assignments", "assignments",
    "logical_count",  "expert_count", "freq",     "frequency"};
// Parts of the names of other columns that hold counts, or what is proportional to them.
constexpr std::string_view count_words[] = {"count",  "tokens", "load",   "hits",  "freq",  "num",   "activ",
                                            "assign", "usage",  "select", "ratio", "share", "value", "total"};
constexpr std::string_view ratio_words[] = {"ratio", "share", "percent", "pct", "frac", "prob", "weight"};
// Parts of the names of summaries, which no expert has.
constexpr std::string_view summary_words[] = {"total",   "sum",   "mean",   "avg", "average", "min",
                                              "max",     "std",   "var",    "cv",  "ratio",   "count",
                                              "balance", "model", "median", "name"};

std::string lowered(std::string_view name) {
  std::string text;
  for (char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || byte >= 0x80) {
      text += static_cast<char>(std::tolower(byte));
    } else if (!text.empty() && text.back() != '_') {
      text += '_';
    }
  }
  if (text.ends_with('_')) text.pop_back();
  return text;
}

bool is_one_of(Words words, std::string_view name) {
  return std::find(words.begin(), words.end(), name) != words.end();
}

bool has_one_of(Words words, std::string_view name) {
  return std::any_of(words.begin(), words.end(),
                     [&](std::string_view word) { return name.find(word) != std::string_view::npos; });
}

// "expert_12" is 12 of "expert_".
struct NumberedName {
  std::string around;
  int number = 0;
};

std::optional<NumberedName> numbered(const std::string& name) {
  const std::size_t last = name.find_last_of("0123456789");
  if (last == std::string::npos) return std::nullopt;
  std::size_t first = last;
  while (first > 0 && std::isdigit(static_cast<unsigned char>(name[first - 1])) != 0) --first;
  NumberedName made{.around = name.substr(0, first) + "#" + name.substr(last + 1)};
  const auto [at, error] = std::from_chars(name.data() + first, name.data() + last + 1, made.number);
  if (error != std::errc() || made.number >= max_experts) return std::nullopt;
  return made;
}

bool is_name(std::string_view cell) {
  const auto first = static_cast<unsigned char>(cell.front());
  const std::string name = lowered(cell);
  // Digits of other scripts are no letters.
  const bool has_letter = std::any_of(name.begin(), name.end(), [](char c) { return c >= 'a' && c <= 'z'; });
  return has_letter && (std::isalpha(first) != 0 || first == '_' || first >= 0x80) && name != "nan" &&
         name != "inf" && name != "infinity" && name != "null" && name != "none" && name != "na";
}

bool goes_with_ids(std::string_view cell) {
  const std::string name = lowered(cell);
  return names_a_layer_or_step(cell) || is_one_of(index_names, name) || is_one_of(expert_names, name);
}

// The names of one table.
class Names {
 public:
  Names(const std::vector<std::string_view>& names, const std::string& file, const std::string& where)
      : given_(names), file_(file), where_(where) {
    for (std::string_view name : names) names_.push_back(lowered(name));
    require_different();
  }

  TableColumns columns() const {
    require_no_physical();
    TableColumns made;
    made.layer = only(layer_names);
    made.layer_is_order = made.layer && is_one_of(moe_layer_names, names_[*made.layer]);
    made.expert = only(expert_names);
    std::optional<std::size_t> index;
    std::vector<std::size_t> rest;
    for (std::size_t i = 0; i < names_.size(); ++i) {
      if (i == made.layer || i == made.expert) continue;
      if (i == 0 && is_one_of(index_names, names_[i])) {
        index = i;
      } else if (is_one_of(step_names, names_[i])) {
        made.steps.push_back(i);
      } else if (is_one_of(part_names, names_[i])) {
        made.parts.push_back(i);
      } else {
        rest.push_back(i);
      }
    }
    if (are_layers(rest)) {
      take_layers(rest, made);
      if (!made.expert) made.expert = index;
      const auto& apart = made.steps.empty() ? made.parts : made.steps;
      if (!made.expert && !apart.empty())
        refuse("has a column '{}' and columns of layers, but none of experts; call it 'expert'",
               given_[apart.front()]);
    } else if (made.expert) {
      made.counts = {count_column(rest)};
    } else {
      made.counts = expert_columns(rest);
      if (!made.layer && index) {
        made.layer = index;
        made.layer_is_index = true;
      }
    }
    return made;
  }

 private:
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> why, Args&&... args) const {
    throw parse_error(file_, where_, why, std::forward<Args>(args)...);
  }

  std::string quoted(const std::vector<std::size_t>& columns) const {
    std::string text;
    for (std::size_t i = 0; i < std::min<std::size_t>(columns.size(), 8); ++i)
      text += fmt::format("{}'{}'", i > 0 ? ", " : "", given_[columns[i]]);
    return columns.size() > 8 ? text + ", ..." : text;
  }

  void require_different() const {
    std::vector<std::size_t> order(names_.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return std::tie(names_[a], a) < std::tie(names_[b], b); });
    for (std::size_t i = 1; i < order.size(); ++i)
      if (names_[order[i]] == names_[order[i - 1]])
        refuse("two columns, {} and {}, are called '{}'", order[i - 1] + 1, order[i] + 1, given_[order[i]]);
  }

  void require_no_physical() const {
    for (std::size_t i = 0; i < names_.size(); ++i)
      if (names_[i].find("physical") != std::string::npos || names_[i].find("slot") != std::string::npos)
        refuse(
            "column '{}' is of physical experts, and a table has no map of them; add up their "
            "counts by logical expert",
            given_[i]);
  }

  std::optional<std::size_t> only(Words words) const {
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < names_.size(); ++i)
      if (is_one_of(words, names_[i])) found.push_back(i);
    if (found.size() > 1) refuse("columns {} mean the same; leave one of them", quoted(found));
    return found.empty() ? std::nullopt : std::optional(found.front());
  }

  bool are_layers(const std::vector<std::size_t>& columns) const {
    return !columns.empty() && std::all_of(columns.begin(), columns.end(), [&](std::size_t column) {
      const auto number = numbered(names_[column]);
      return number && number->around.find("layer") != std::string::npos &&
             number->around.find("expert") == std::string::npos;
    });
  }

  void take_layers(const std::vector<std::size_t>& columns, TableColumns& made) const {
    if (made.layer)
      refuse("a column '{}' and columns {} both name layers", given_[*made.layer], quoted(columns));
    require_one_pattern(columns);
    made.counts = columns;
    for (std::size_t column : columns) made.layers.push_back(numbered(names_[column])->number);
  }

  // The one that is the count, of all that are neither layer, expert nor step.
  std::size_t count_column(const std::vector<std::size_t>& columns) const {
    std::vector<std::size_t> exact;
    std::vector<std::size_t> like;
    std::vector<std::size_t> ratios;
    for (std::size_t column : columns) {
      if (names_[column] == count_names[0]) return column;
      if (is_one_of(count_names, names_[column])) exact.push_back(column);
      if (has_one_of(count_words, names_[column]) || has_one_of(ratio_words, names_[column]))
        (has_one_of(ratio_words, names_[column]) ? ratios : like).push_back(column);
    }
    for (const auto& found : {exact, like, ratios})
      if (found.size() == 1) return found.front();
    for (const auto& found : {exact, like, ratios})
      if (!found.empty())
        refuse("any of the columns {} may be the count; leave one of them, or call it 'count'",
               quoted(found));
    refuse(
        "has a column of experts, '{}', but none of counts; call it 'count'. Experts of single "
        "tokens are no table: save them as an array 'topk_ids'",
        given_[*only(expert_names)]);
  }

  // In the order of their experts.
  std::vector<std::size_t> expert_columns(const std::vector<std::size_t>& columns) const {
    if (columns.size() < 2)
      refuse(
          "has {} columns of counts, and a layer has two experts at least; of a line for each "
          "expert, call the columns 'layer', 'expert' and 'count'",
          columns.size());
    const bool any_id = std::any_of(columns.begin(), columns.end(),
                                    [&](std::size_t column) { return numbered(names_[column]).has_value(); });
    if (any_id) return by_id(columns);
    for (std::size_t column : columns)
      if (has_one_of(summary_words, names_[column]))
        refuse(
            "'{}' is the name of no expert; leave the column out, or call the columns of "
            "experts 'expert_0', 'expert_1', ...",
            given_[column]);
    return columns;
  }

  void require_one_pattern(const std::vector<std::size_t>& columns) const {
    std::optional<NumberedName> first;
    for (std::size_t column : columns) {
      const auto number = numbered(names_[column]);
      if (!number || (first && number->around != first->around))
        refuse("column '{}' is not named as {} are; leave it out", given_[column],
               quoted({columns[column == columns.front() ? 1 : 0]}));
      if (!first) first = number;
    }
  }

  std::vector<std::size_t> by_id(const std::vector<std::size_t>& columns) const {
    require_one_pattern(columns);
    std::vector<std::optional<std::size_t>> of_expert(columns.size());
    for (std::size_t column : columns) {
      const std::size_t id = static_cast<std::size_t>(numbered(names_[column])->number);
      if (id >= of_expert.size())
        refuse("column '{}' is of expert {}, but {} columns are of experts 0..{}", given_[column], id,
               columns.size(), columns.size() - 1);
      if (of_expert[id])
        refuse("columns '{}' and '{}' are both of expert {}", given_[*of_expert[id]], given_[column], id);
      of_expert[id] = column;
    }
    std::vector<std::size_t> ordered;
    for (const auto& column : of_expert) ordered.push_back(*column);
    return ordered;
  }

  const std::vector<std::string_view>& given_;
  std::vector<std::string> names_;
  const std::string& file_;
  const std::string& where_;
};

}  // namespace

bool is_line_of_names(const std::vector<std::string_view>& cells) {
  std::vector<std::int64_t> ids;
  std::size_t names = 0;
  bool all_known = true;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (cells[i].empty()) {
      if (i > 0) return false;
      ++names;
    } else if (const auto number = number_of_text(cells[i])) {
      if (!number->is_whole) return false;
      ids.push_back(number->whole);
    } else if (is_name(cells[i])) {
      ++names;
      all_known = all_known && goes_with_ids(cells[i]);
    } else {
      return false;
    }
  }
  if (ids.empty()) return cells.size() > 1 || !cells.front().empty();
  // Numbers are names only where they count the experts. So few of them may be counts.
  if (names == 0 && ids.size() < 4) return false;
  if (names > 0) std::sort(ids.begin(), ids.end());
  for (std::size_t i = 0; i < ids.size(); ++i)
    if (ids[i] != static_cast<std::int64_t>(i)) return false;
  return all_known && (names == 0 || ids.size() > 1);
}

bool names_a_layer_or_expert(const std::vector<std::string_view>& cells) {
  return std::any_of(cells.begin(), cells.end(), [](std::string_view cell) {
    const std::string name = lowered(cell);
    return is_one_of(layer_names, name) || is_one_of(expert_names, name);
  });
}

bool names_a_step(std::string_view name) {
  return is_one_of(step_names, lowered(name));
}

bool names_a_part(std::string_view name) {
  return is_one_of(part_names, lowered(name));
}

bool names_a_layer_or_step(std::string_view name) {
  return is_one_of(layer_names, lowered(name)) || names_a_step(name) || names_a_part(name);
}

TableColumns columns_of_names(const std::vector<std::string_view>& names, const std::string& file,
                              const std::string& where) {
  return Names(names, file, where).columns();
}

TableColumns columns_without_names(std::size_t columns) {
  TableColumns made;
  made.counts.resize(columns);
  std::iota(made.counts.begin(), made.counts.end(), 0);
  return made;
}

}  // namespace evenkeel::internal
