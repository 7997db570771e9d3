// The meanings of column names.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/internal/table.h"
#include "evenkeel/io/limits.h"

namespace evenkeel::internal {

namespace {

using Columns = std::vector<std::size_t>;

// Names are in lower case, with _ for all characters but letters and digits. The first meaning that fits is
// taken, so "tokens" are counts. In a pattern, # is a number.
const std::pair<Meaning, std::vector<std::string_view>> known_names[] = {
    {Meaning::count,
     {"count_all_topk", "count", "counts", "num_tokens", "token_count", "tokens", "load", "loads", "n_tokens",
      "hits", "num_assignments", "assignments", "logical_count", "expert_count", "freq", "frequency"}},
    // moe_layer counts only MoE layers, so it is not the model's layer number.
    {Meaning::layer, {"layer", "moe_layer"}},
    {Meaning::expert, {"expert", "logical_expert"}},
    {Meaning::token, {"token", "token_pos", "position", "pos", "token_position"}},
    {Meaning::step, {"step", "iter", "iteration", "forward_pass", "pass", "batch", "global_step"}},
    // A time may belong to a step or to one rank's output; it counts as a part.
    {Meaning::part,
     {"rank", "source_rank", "ep_rank", "dp_rank", "tp_rank", "device", "gpu", "node", "timestamp", "time"}},
    {Meaning::choice,
     {"k#", "k_#", "topk#", "topk_#", "topk_id_#", "top_k_#", "topk_ids_#", "top#", "choice_#"}},
    // Names of a column that counts the lines; its name may also be empty.
    {Meaning::index, {"unnamed_0", "index", "row"}}};
// Allowed endings of names for a layer, expert, token, step or part: "layer_idx" and "Layers" mean "layer".
constexpr std::string_view endings[] = {"", "_id", "_idx", "_index", "_number", "_num", "_no", "s"};

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

bool is_one_of(std::span<const std::string_view> words, std::string_view name) {
  return std::ranges::find(words, name) != words.end();
}

// "expert_12" has the pattern "expert_#" and the number 12.
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

bool is_index(std::string_view cell) {
  return cell.empty() || column_meaning(cell) == Meaning::index;
}

// Determines the columns of a table from their names.
class Names {
 public:
  Names(const Cells& names, const std::string& file, const std::string& where)
      : given_(names), file_(file), where_(where) {
    std::set<std::string> met;
    for (std::size_t i = 0; i < given_.size(); ++i) {
      if (given_[i] == "-") continue;
      const std::string name = lowered(given_[i]);
      if (!met.insert(name).second) refuse("two columns are called '{}'", given_[i]);
      require_logical_experts(i, name);
      const Meaning meaning = column_meaning(name);
      if (i == 0 && is_index(given_[i])) {
        made_.index = i;
        continue;
      }
      of_[meaning].push_back(i);
      if (meaning >= Meaning::count) rest_.push_back(i);
      if (meaning == Meaning::layer) made_.layer_is_order = name.starts_with("moe");
    }
  }

  TableColumns columns() && {
    made_.layer = only(Meaning::layer);
    made_.expert = only(Meaning::expert);
    made_.token = only(Meaning::token);
    made_.steps = of_[Meaning::step];
    made_.parts = of_[Meaning::part];
    made_.numbers_are_ids = !rest_.empty() && rest_ == of_[Meaning::choice];
    if (made_.expert && made_.numbers_are_ids)
      refuse("column '{}' and columns {} both hold experts; keep only one or the other",
             given_[*made_.expert], quoted(rest_));
    if (made_.token && !made_.numbers_are_ids)
      refuse(
          "has a column '{}', so all columns of numbers must be that token's experts; name them 'k_0', "
          "'k_1', ..., and remove any others",
          given_[*made_.token]);
    made_.numbers = made_.expert ? Columns{count_column()} : by_number();
    return std::move(made_);
  }

 private:
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

  void require_logical_experts(std::size_t column, const std::string& name) const {
    const auto has = [&](std::string_view part) { return name.find(part) != std::string::npos; };
    if (has("physical") || has("slot"))
      refuse(
          "column '{}' is of physical experts, and a table has no map to logical experts; add up the counts "
          "by logical expert",
          given_[column]);
    if (column_meaning(name) == Meaning::one_layer)
      refuse(
          "column '{}' is of one layer; write a line for each layer, with the columns 'layer', 'expert_0', "
          "'expert_1', ..., or a line for each expert, with the columns 'layer', 'expert' and 'count'",
          given_[column]);
  }

  std::optional<std::size_t> only(Meaning meaning) {
    const Columns& found = of_[meaning];
    if (found.size() > 1) refuse("columns {} mean the same; keep only one of them", quoted(found));
    return found.empty() ? std::nullopt : std::optional(found.front());
  }

  std::size_t count_column() {
    const Columns& may_be = of_[Meaning::count].empty() ? rest_ : of_[Meaning::count];
    if (may_be.empty())
      refuse("has a column of experts, '{}', but no column of counts; name the counts 'count'",
             given_[*made_.expert]);
    if (may_be.size() > 1)
      refuse("any of the columns {} may be the count; keep only one of them, or name one 'count'",
             quoted(may_be));
    return may_be.front();
  }

  // The columns of choices or experts, ordered by their numbers, which must be 0, 1, ...
  Columns by_number() const {
    const char* const what = made_.numbers_are_ids ? "choice" : "expert";
    if (!made_.numbers_are_ids && rest_.size() < 2)
      refuse(
          "has {} columns of counts, but a layer has at least two experts; if each line is for one expert, "
          "name the columns 'layer', 'expert' and 'count'",
          rest_.size());
    std::string pattern;
    std::vector<std::pair<int, std::size_t>> found;
    for (std::size_t column : rest_) {
      const auto number = numbered(lowered(given_[column]));
      if (number && found.empty()) pattern = number->pattern;
      if (!number || number->pattern != pattern)
        refuse("column '{}' is not named like the columns of {}s, such as '{}_0', '{}_1'; leave it out",
               given_[column], what, what, what);
      found.emplace_back(number->number, column);
    }
    std::ranges::sort(found);
    Columns ordered;
    for (const auto& [number, column] : found) {
      if (number != static_cast<int>(ordered.size()))
        refuse("column '{}' is for {} {}, but the {} columns must be for {}s 0..{}, one each", given_[column],
               what, number, found.size(), what, found.size() - 1);
      ordered.push_back(column);
    }
    return ordered;
  }

  const Cells& given_;
  const std::string& file_;
  const std::string& where_;
  TableColumns made_;
  std::map<Meaning, Columns> of_;
  Columns rest_;  // columns of counts or of a token's ids
};

}  // namespace

Meaning column_meaning(std::string_view given) {
  const std::string name = lowered(given);
  const auto number = numbered(name);
  for (const auto& [meaning, names] : known_names) {
    if (is_one_of(names, name) || (number && is_one_of(names, number->pattern))) return meaning;
    if (meaning >= Meaning::count) continue;
    for (std::string_view ending : endings)
      if (name.ends_with(ending) &&
          is_one_of(names, std::string_view(name).substr(0, name.size() - ending.size())))
        return meaning;
  }
  const auto has = [&](std::string_view part) { return name.find(part) != std::string::npos; };
  return number && has("layer") && !has("expert") ? Meaning::one_layer : Meaning::other;
}

bool is_line_of_names(const Cells& cells) {
  const auto is_number = [](std::string_view cell) { return number_of_text(cell).has_value(); };
  const auto is_known = [](std::string_view cell) {
    return is_index(cell) || column_meaning(cell) < Meaning::count;
  };
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
  const std::size_t first = is_index(cells.front()) ? 1 : 0;
  if (cells.size() < first + (first == 0 ? 3 : 1)) return false;
  for (std::size_t i = first; i < cells.size(); ++i) {
    const auto number = number_of_text(cells[i]);
    if (!number || !number->is_whole || number->whole != static_cast<std::int64_t>(i - first)) return false;
  }
  return true;
}

TableColumns columns_of_names(const Cells& names, const std::string& file, const std::string& where) {
  return Names(names, file, where).columns();
}

TableColumns columns_of_option(std::string_view columns, std::size_t count, const std::string& file) {
  constexpr std::string_view words[] = {"step", "rank", "token", "position", "layer", "expert", "count", "-"};
  const auto refuse = [&](const std::string& why) {
    throw InvalidArgument(
        "columns", fmt::format("{}: {}", columns, why),
        fmt::format(
            "{} (a column to skip); the last may be k... (ids) or experts... (counts), as in layer,k...",
            fmt::join(words, ", ")));
  };
  std::vector<std::string> names;
  for (std::string_view rest = columns; !rest.empty();) {
    const std::string_view word = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), word.size() + 1));
    const bool is_rest = word == "k..." || word == "experts...";
    if (!is_rest && !is_one_of(words, word)) refuse(fmt::format("'{}' is not a known column", word));
    if (is_rest && !rest.empty()) refuse(fmt::format("{} must be the last", word));
    if (!is_rest) names.emplace_back(word);
    for (int i = 0; is_rest && names.size() < count; ++i)
      names.push_back(fmt::format("{}_{}", word == "k..." ? "k" : "expert", i));
  }
  if (names.size() != count)
    refuse(fmt::format("names {} columns, but the file has {}", names.size(), count));
  return columns_of_names({names.begin(), names.end()}, file, "columns");
}

}  // namespace evenkeel::internal
