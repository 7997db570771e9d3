#include "evenkeel/io/internal/table_columns.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/internal/text_table.h"
#include "evenkeel/io/limits.h"

namespace evenkeel::internal {

namespace {

using Columns = std::vector<std::size_t>;

// Names without what is added to any of them: "layer_idx" and "Layers" are "layer".
constexpr std::string_view endings[] = {"_id", "_idx", "_index", "_number", "_num", "_no", "s"};
// A MoE layer's number counts MoE layers alone, so that it is none of the model.
constexpr std::string_view layer_names[] = {"layer", "moe_layer"};
constexpr std::string_view expert_names[] = {"expert", "logical_expert"};
constexpr std::string_view token_names[] = {"token", "token_pos", "position", "pos", "token_position"};
constexpr std::string_view step_names[] = {"step", "iter",  "iteration",  "forward_pass",
                                           "pass", "batch", "global_step"};
// A time is that of a step, or of what one rank wrote: nobody knows which.
constexpr std::string_view part_names[] = {"rank",   "source_rank", "ep_rank", "dp_rank",   "tp_rank",
                                           "device", "gpu",         "node",    "timestamp", "time"};
constexpr std::string_view index_names[] = {"", "unnamed_0", "index", "row"};
// The first is the count wherever it is; of the others there may be one.
constexpr std::string_view count_names[] = {
    "count_all_topk", "count",        "counts",   "num_tokens", "token_count",     "tokens",
    "load",           "loads",        "n_tokens", "hits",       "num_assignments", "assignments",
    "logical_count",  "expert_count", "freq",     "frequency"};
// What stands before the place of a choice in a token's top-k.
constexpr std::string_view choice_names[] = {"k#",      "k_#",        "topk#", "topk_#",  "topk_id_#",
                                             "top_k_#", "topk_ids_#", "top#",  "choice_#"};

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

template <class Words>
bool is_one_of(const Words& words, std::string_view name) {
  return std::ranges::find(words, name) != std::end(words);
}

// Of a name as it is given.
template <class Words>
bool is_called(const Words& words, std::string_view given) {
  const std::string name = lowered(given);
  if (is_one_of(count_names, name)) return false;  // "tokens" is no token
  if (is_one_of(words, name)) return true;
  return std::ranges::any_of(endings, [&](std::string_view ending) {
    return name.ends_with(ending) &&
           is_one_of(words, std::string_view(name).substr(0, name.size() - ending.size()));
  });
}

// "expert_12" is 12 of "expert_#".
struct NumberedName {
  std::string pattern;
  int number = 0;
};

std::optional<NumberedName> numbered(const std::string& name) {
  const std::size_t last = name.find_last_of("0123456789");
  if (last == std::string::npos) return std::nullopt;
  std::size_t first = last;
  while (first > 0 && std::isdigit(static_cast<unsigned char>(name[first - 1])) != 0) --first;
  NumberedName made{.pattern = name.substr(0, first) + "#" + name.substr(last + 1)};
  const auto [at, error] = std::from_chars(name.data() + first, name.data() + last + 1, made.number);
  if (error != std::errc() || made.number >= max_experts) return std::nullopt;
  return made;
}

// The names of one table.
class Names {
 public:
  Names(const Cells& names, const std::string& file, const std::string& where)
      : given_(names), file_(file), where_(where) {
    for (std::string_view name : names) names_.push_back(lowered(name));
    std::map<std::string_view, std::size_t> places;
    for (std::size_t i = 0; i < names_.size(); ++i)
      if (is_skipped(i))
        continue;
      else if (const auto [place, fresh] = places.try_emplace(names_[i], i); !fresh)
        refuse("two columns, {} and {}, are called '{}'", place->second + 1, i + 1, given_[i]);
      else if (names_[i].find("physical") != std::string::npos || names_[i].find("slot") != std::string::npos)
        refuse(
            "column '{}' is of physical experts, and a table has no map of them; add up their counts by "
            "logical expert",
            given_[i]);
  }

  TableColumns columns() const {
    TableColumns made;
    made.layer = only(layer_names);
    made.layer_is_order = made.layer && names_[*made.layer].starts_with("moe");
    made.expert = only(expert_names);
    made.token = only(token_names);
    Columns rest;
    for (std::size_t i = 0; i < names_.size(); ++i) {
      if (i == made.layer || i == made.expert || i == made.token || is_skipped(i)) continue;
      if (i == 0 && is_one_of(index_names, names_[i]))
        made.index = i;
      else if (is_called(step_names, names_[i]))
        made.steps.push_back(i);
      else if (is_called(part_names, names_[i]))
        made.parts.push_back(i);
      else
        rest.push_back(i);
    }
    take_numbers(rest, made);
    return made;
  }

 private:
  bool is_skipped(std::size_t column) const { return given_[column] == "-"; }

  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> why, Args&&... args) const {
    throw parse_error(file_, where_, why, std::forward<Args>(args)...);
  }

  std::string quoted(const Columns& columns) const {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < std::min<std::size_t>(columns.size(), 8); ++i)
      names.push_back(fmt::format("'{}'", given_[columns[i]]));
    return fmt::format("{}{}", fmt::join(names, ", "), columns.size() > 8 ? ", ..." : "");
  }

  template <class Words>
  std::optional<std::size_t> only(const Words& words) const {
    Columns found;
    for (std::size_t i = 0; i < names_.size(); ++i)
      if (is_called(words, names_[i])) found.push_back(i);
    if (found.size() > 1) refuse("columns {} mean the same; leave one of them", quoted(found));
    return found.empty() ? std::nullopt : std::optional(found.front());
  }

  // The columns that are neither layer, expert, token nor step: counts, or the ids of a token.
  void take_numbers(const Columns& rest, TableColumns& made) const {
    if (all_are(rest, [](const std::string& pattern) { return is_one_of(choice_names, pattern); })) {
      if (made.expert)
        refuse("column '{}' is of experts, and columns {} are too", given_[*made.expert], quoted(rest));
      made.choices = by_number(rest, "choice");
    } else if (made.token) {
      const auto is_choice = [&](std::size_t column) {
        const auto number = numbered(names_[column]);
        return number && is_one_of(choice_names, number->pattern);
      };
      if (std::ranges::any_of(rest, is_choice))
        refuse("column '{}' is none of the token's experts, which are called 'k_0', 'k_1', ...; leave it out",
               given_[*std::ranges::find_if_not(rest, is_choice)]);
      refuse("has a column '{}', but none of the token's experts; call those 'k_0', 'k_1', ...",
             given_[*made.token]);
    } else if (all_are(rest, is_of_layers)) {
      take_layers(rest, made);
    } else if (made.expert) {
      require_no_layers(rest);
      made.counts = {count_column(rest)};
    } else {
      if (rest.size() < 2)
        refuse(
            "has {} columns of counts, and a layer has two experts at least; of a line for each expert, call "
            "the columns 'layer', 'expert' and 'count'",
            rest.size());
      made.counts = by_number(rest, "expert");
    }
  }

  static bool is_of_layers(const std::string& pattern) {
    return pattern.find("layer") != std::string::npos && pattern.find("expert") == std::string::npos;
  }

  // Beside columns of layers a total may stand.
  void require_no_layers(const Columns& columns) const {
    for (std::size_t column : columns)
      if (const auto number = numbered(names_[column]); number && is_of_layers(number->pattern))
        refuse("the columns {} are of layers and of something else; leave one kind out", quoted(columns));
  }

  template <class Predicate>
  bool all_are(const Columns& columns, Predicate is_meant) const {
    return !columns.empty() && std::ranges::all_of(columns, [&](std::size_t column) {
      const auto number = numbered(names_[column]);
      return number && is_meant(number->pattern);
    });
  }

  void take_layers(const Columns& columns, TableColumns& made) const {
    if (made.layer)
      refuse("a column '{}' and columns {} both name layers", given_[*made.layer], quoted(columns));
    require_one_pattern(columns);
    made.counts = columns;
    for (std::size_t column : columns) made.layers.push_back(numbered(names_[column])->number);
    if (!made.expert) made.expert = made.index;
    const auto& apart = made.steps.empty() ? made.parts : made.steps;
    if (!made.expert && !apart.empty())
      refuse("has a column '{}' and columns of layers, but none of experts; call it 'expert'",
             given_[apart.front()]);
  }

  // The one that is the count.
  std::size_t count_column(const Columns& columns) const {
    Columns known;
    for (std::size_t column : columns) {
      if (names_[column] == count_names[0]) return column;
      if (is_one_of(count_names, names_[column])) known.push_back(column);
    }
    const Columns& may_be = known.empty() ? columns : known;
    if (may_be.size() == 1) return may_be.front();
    if (may_be.empty())
      refuse("has a column of experts, '{}', but none of counts; call it 'count'",
             given_[*only(expert_names)]);
    refuse("any of the columns {} may be the count; leave one of them, or call it 'count'", quoted(may_be));
  }

  void require_one_pattern(const Columns& columns) const {
    std::optional<NumberedName> first;
    for (std::size_t column : columns) {
      const auto number = numbered(names_[column]);
      if (!number && !first)
        refuse(
            "'{}' is the name of no expert; leave the column out, or call the columns of experts "
            "'expert_0', 'expert_1', ...",
            given_[column]);
      if (!number || (first && number->pattern != first->pattern))
        refuse("column '{}' is not named as '{}' are; leave it out", given_[column], given_[columns.front()]);
      if (!first) first = number;
    }
  }

  // In the order of their numbers, which are 0, 1, ...
  Columns by_number(const Columns& columns, const char* what) const {
    require_one_pattern(columns);
    std::vector<std::optional<std::size_t>> places(columns.size());
    for (std::size_t column : columns) {
      const std::size_t number = static_cast<std::size_t>(numbered(names_[column])->number);
      if (number >= places.size())
        refuse("column '{}' is of {} {}, but {} columns are of {}s 0..{}", given_[column], what, number,
               columns.size(), what, columns.size() - 1);
      if (places[number])
        refuse("columns '{}' and '{}' are both of {} {}", given_[*places[number]], given_[column], what,
               number);
      places[number] = column;
    }
    Columns ordered;
    for (const auto& column : places) ordered.push_back(*column);
    return ordered;
  }

  const Cells& given_;
  std::vector<std::string> names_;
  const std::string& file_;
  const std::string& where_;
};

}  // namespace

bool is_line_of_names(const Cells& cells) {
  const auto is_known = [](std::string_view cell) {
    return names_a_layer_or_step(cell) || is_called(expert_names, cell) || is_called(token_names, cell) ||
           (cell.empty() || (!lowered(cell).empty() && is_one_of(index_names, lowered(cell))));
  };
  const auto is_number = [](std::string_view cell) { return number_of_text(cell).has_value(); };
  if (std::ranges::find(cells.begin() + 1, cells.end(), "") != cells.end()) return false;
  if (std::ranges::none_of(cells, is_number))
    return std::ranges::any_of(cells, [](std::string_view cell) {
      return !cell.empty() &&
             (std::isalpha(static_cast<unsigned char>(cell.front())) != 0 || cell.front() == '_');
    });
  return !is_line_of_ids(cells) && !std::ranges::all_of(cells, is_number) &&
         std::ranges::all_of(cells, [&](std::string_view cell) { return is_number(cell) || is_known(cell); });
}

bool is_line_of_ids(const Cells& cells) {
  const std::size_t first = is_one_of(index_names, lowered(cells.front())) ? 1 : 0;
  if (cells.size() < first + (first == 0 ? 3 : 1)) return false;
  for (std::size_t i = first; i < cells.size(); ++i) {
    const auto number = number_of_text(cells[i]);
    if (!number || !number->is_whole || number->whole != static_cast<std::int64_t>(i - first)) return false;
  }
  return true;
}

bool names_a_layer_or_expert(const Cells& cells) {
  return std::ranges::any_of(cells, [](std::string_view cell) {
    return is_called(layer_names, cell) || is_called(expert_names, cell);
  });
}

bool names_a_step(std::string_view name) {
  return is_called(step_names, name);
}

bool names_a_part(std::string_view name) {
  return is_called(part_names, name);
}

bool names_a_layer_or_step(std::string_view name) {
  return is_called(layer_names, name) || names_a_step(name) || names_a_part(name);
}

TableColumns columns_of_names(const Cells& names, const std::string& file, const std::string& where) {
  return Names(names, file, where).columns();
}

std::vector<std::string> names_of_columns(std::string_view columns, std::size_t count) {
  constexpr std::string_view words[] = {"step", "rank", "token", "position", "layer", "expert", "count", "-"};
  const auto refuse = [&](const std::string& why) {
    throw InvalidArgument(
        "columns", fmt::format("{}: {}", columns, why),
        fmt::format("{} (a column to skip), and last k... (ids) or experts... (counts), such "
                    "as layer,k...",
                    fmt::join(words, ", ")));
  };
  std::vector<std::string> names;
  for (std::string_view rest = columns; !rest.empty();) {
    const std::string_view word = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), word.size() + 1));
    const bool is_rest = word == "k..." || word == "experts...";
    if (!is_rest && !is_one_of(words, word)) refuse(fmt::format("'{}' is no column", word));
    if (is_rest && !rest.empty()) refuse(fmt::format("{} is not the last", word));
    if (!is_rest) names.emplace_back(word);
    for (int i = 0; is_rest && names.size() < count; ++i)
      names.push_back(fmt::format("{}_{}", word == "k..." ? "k" : "expert", i));
  }
  if (names.size() != count) refuse(fmt::format("names {} of {} columns", names.size(), count));
  return names;
}

}  // namespace evenkeel::internal
