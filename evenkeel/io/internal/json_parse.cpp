// Parses JSON with nlohmann-json's tokenizer; every list is allocated once, at its final length.
#include <fmt/format.h>

#include <algorithm>
#include <istream>
#include <streambuf>

#include "evenkeel/base/error.h"
#include "evenkeel/base/printable.h"
#include "evenkeel/base/stop.h"
#include "evenkeel/io/array_file.h"
#include "evenkeel/io/internal/json.h"

namespace evenkeel::internal {

namespace {

// A stream buffer over the text that knows how far the tokenizer has read.
class TextBuffer : public std::streambuf {
 public:
  explicit TextBuffer(std::string_view text) {
    char* const begin = const_cast<char*>(text.data());
    setg(begin, begin, begin + text.size());
  }
  std::string_view rest() const { return {gptr(), egptr()}; }
};

// The error text without its label, as in "[json.exception.parse_error.101] parse error at line 1, column 2:
// ...". Long tokens are shortened.
std::string plain(const Json::exception& error) {
  constexpr std::size_t most = 400;
  std::string_view text = error.what();
  if (const std::size_t label = text.find("] "); label != std::string_view::npos)
    text.remove_prefix(label + 2);
  return shortened(text, most);
}

// Builds the document from nlohmann-json's SAX events.
class JsonBuilder {
 public:
  JsonBuilder(std::string_view text, const std::string& file, std::int64_t begin)
      : text_(text), file_(file), begin_(begin), buffer_(text) {
    // The tokenizer would take a NUL for the end of the text.
    if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos)
      throw ParseError(file, byte(nul), "is a NUL, which no JSON has");
  }

  Json build() {
    std::istream stream(&buffer_);
    Json::sax_parse(stream, this);
    return std::move(root_);
  }

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(std::int64_t value) { return add(value); }
  bool number_unsigned(std::uint64_t value) { return add(value); }
  bool number_float(double value, const std::string&) { return add(value); }
  bool binary(const Json::binary_t&) { return false; }
  bool string(std::string& value) {
    count_part();
    return add(std::move(value));
  }
  bool key(std::string& name) {
    const auto [member, is_new] =
        open_.back()->get_ref<Json::object_t&>().try_emplace(std::move(name), nullptr);
    // If a key is given twice, parsers differ in which value they keep.
    if (!is_new) throw ParseError(file_, member->first, "is given twice");
    added_ = &member->second;
    return true;
  }
  bool start_object(std::size_t) { return open(Json::object()); }
  bool end_object() { return close(); }
  bool start_array(std::size_t) {
    open(Json::array());
    // Counts all elements if none is a list or an object, else only those before the first list or object.
    const std::string_view rest = buffer_.rest();
    const std::string_view flat = rest.substr(0, rest.find_first_of("[]{"));
    if (const auto commas = std::ranges::count(flat, ','); commas > 0)
      added_->get_ref<Json::array_t&>().reserve(static_cast<std::size_t>(commas) + 1);
    return true;
  }
  bool end_array() { return close(); }

  bool parse_error(std::size_t position, const std::string&, const Json::exception& error) {
    if (open_.empty() && root_.is_array() && text_.substr(0, position).ends_with('['))
      throw ParseError(
          file_, byte(position),
          "a second list begins here; write one list of all lists, [[...], [...]], or a text table");
    throw ParseError(file_, byte(position), plain(error));
  }

 private:
  std::string byte(std::size_t at) const {
    return fmt::format("byte {}", begin_ + static_cast<std::int64_t>(at));
  }

  void count_part() {
    if (++parts_ > max_json_parts)
      throw internal::parse_error(file_, byte(text_.size() - buffer_.rest().size()),
                                  "more than {} lists, objects and texts in one JSON", max_json_parts);
  }

  template <class Value>
  bool add(Value&& value) {
    if (open_.empty())
      added_ = &root_;
    else if (open_.back()->is_array())
      added_ = &open_.back()->get_ref<Json::array_t&>().emplace_back();
    *added_ = std::forward<Value>(value);
    return true;
  }

  bool open(Json&& container) {
    stop_if_asked();
    count_part();
    if (open_.size() == max_json_depth)
      throw internal::parse_error(file_, "", "is nested deeper than {} levels", max_json_depth);
    add(std::move(container));
    open_.push_back(added_);
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  std::string_view text_;
  const std::string& file_;
  std::int64_t begin_;
  TextBuffer buffer_;
  Json root_;
  std::vector<Json*> open_;
  Json* added_ = nullptr;  // the last value, or the place for the value of the last key
  int parts_ = 0;
};

}  // namespace

JsonDocument parse_json(std::string_view text, const std::string& file, std::int64_t begin) {
  return JsonDocument(JsonBuilder(text, file, begin).build());
}

JsonDocument read_json(const ByteSource& source) {
  return parse_json(read_text(source, "JSON"), source.name());
}

void require_json(const ByteSource& source, std::string_view what) {
  if (const FileFormat format = detect_format(source); format != FileFormat::json)
    throw parse_error(source.name(), "", "is a {} file, but {} must be JSON", name_of(format), what);
}

JsonDocument read_config_json(const ByteSource& source) {
  const std::string text = read_text(source, "JSON");
  // Each `null` is padded to the length of the word that it replaces, if possible, so that byte offsets in
  // errors stay right.
  constexpr std::pair<std::string_view, std::string_view> nulls[] = {
      {"-Infinity", "null     "}, {"Infinity", "null    "}, {"NaN", "null"}};
  std::string read;
  read.reserve(text.size());
  bool in_string = false;
  for (std::size_t at = 0; at < text.size();) {
    const auto* const null = std::ranges::find_if(nulls, [&](const auto& each) {
      return !in_string && text.compare(at, each.first.size(), each.first) == 0;
    });
    if (null != std::end(nulls)) {
      read += null->second;
      at += null->first.size();
      continue;
    }
    if (text[at] == '"') in_string = !in_string;
    if (in_string && text[at] == '\\') read += text[at++];
    if (at < text.size()) read += text[at++];
  }
  return parse_json(read, source.name());
}

void for_each_outer_key(std::string_view text, const std::function<bool(std::string_view)>& take) {
  struct Enough {};
  const auto look_at = [&](int depth, Json::parse_event_t event, Json& parsed) {
    const bool is_outer_key = depth == 1 && event == Json::parse_event_t::key;
    if (depth > max_json_depth || (is_outer_key && !take(parsed.get_ref<const std::string&>())))
      throw Enough();
    return false;  // nothing is kept
  };
  try {
    [[maybe_unused]] const Json nothing = Json::parse(text.begin(), text.end(), look_at, false);
  } catch (const Enough&) {
  }
}

void for_each_json_line(const ByteSource& source,
                        const std::function<void(JsonDocument&&, std::int64_t)>& take) {
  std::int64_t number = 0;
  const auto take_line = [&](std::string_view line, std::int64_t begin) {
    ++number;
    const std::size_t first = line.find_first_not_of(" \t\r");
    if (first == std::string_view::npos) return;
    if (line.substr(first).find_last_not_of(" \t\r") == 0 && (line[first] == '{' || line[first] == '['))
      throw parse_error(source.name(), fmt::format("line {}", number),
                        "begins a record of several lines; write each record in one line, as jq -c does");
    take(parse_json(line, fmt::format("{}: line {}", source.name(), number), begin), number);
  };
  std::string text;  // the file from byte `begin` on, without the lines already taken
  std::int64_t begin = 0;
  for_each_piece(source, 0, [&](std::string_view piece) {
    if (std::ssize(text) > max_text_bytes)
      throw parse_error(source.name(), fmt::format("byte {}", begin), "a line of more than {} bytes",
                        max_text_bytes);
    std::size_t searched = text.size();
    text += piece;
    std::size_t taken = 0;
    for (std::size_t end = text.find('\n', searched); end != std::string::npos;
         end = text.find('\n', taken)) {
      take_line(std::string_view(text).substr(taken, end - taken), begin + static_cast<std::int64_t>(taken));
      taken = end + 1;
    }
    // Erased once for all lines of a piece, since erasing moves the rest of the text.
    text.erase(0, taken);
    begin += static_cast<std::int64_t>(taken);
    return true;
  });
  if (!text.empty()) take_line(text, begin);
}

}  // namespace evenkeel::internal
