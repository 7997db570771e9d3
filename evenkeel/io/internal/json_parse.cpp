// How a text becomes a document: nlohmann-json's tokenizer parses, and every list is made as long as it will
// be.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "evenkeel/base/error.h"
#include "evenkeel/base/printable.h"
#include "evenkeel/base/stop.h"
#include "evenkeel/io/array_file.h"
#include "evenkeel/io/internal/json.h"

namespace evenkeel::internal {

namespace {

// A tokenizer holds a token several times over.
constexpr std::ptrdiff_t max_token_bytes = std::ptrdiff_t{16} << 20;

// How far the tokenizer has read, and how far it may. Whoever takes the values looks ahead from here.
struct ReadPosition {
  const char* at;
  const char* end;
};

class Cursor {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  explicit Cursor(ReadPosition& position) : position_(&position) {}
  const char& operator*() const { return *position_->at; }
  Cursor& operator++() {
    ++position_->at;
    return *this;
  }
  // Every other cursor is the end.
  bool operator==(const Cursor&) const { return position_->at == position_->end; }

 private:
  ReadPosition* position_;
};

// "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error ..." without its label, and
// not much more of a long token than shows which it is.
std::string plain(const Json::exception& error) {
  constexpr std::size_t most = 400;
  std::string_view text = error.what();
  if (const std::size_t label = text.find("] "); label != std::string_view::npos)
    text.remove_prefix(label + 2);
  return shortened(text, most);
}

// Makes the document of nlohmann-json's events.
class JsonBuilder {
 public:
  JsonBuilder(std::string_view text, const std::string& file, std::int64_t begin)
      : text_(text),
        file_(file),
        begin_(begin),
        // The tokenizer would take a NUL for the end of the text.
        end_(text.data() + std::min(text.find('\0'), text.size())),
        position_{.at = text.data(), .end = text.data()} {
    allow_a_token();
  }

  Json build() {
    Json::sax_parse(Cursor(position_), Cursor(position_), this);
    if (position_.at != text_.data() + text_.size()) refuse_the_rest();
    return std::move(root_);
  }

  bool null() { return put(nullptr); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(std::int64_t value) { return put(value); }
  bool number_unsigned(std::uint64_t value) { return put(value); }
  bool number_float(double value, const std::string&) { return put(value); }
  bool binary(const Json::binary_t&) { return false; }
  bool string(std::string& value) {
    count_part();
    return put(std::move(value));
  }
  bool key(std::string& name) {
    allow_a_token();
    const auto [member, is_new] =
        open_.back()->get_ref<Json::object_t&>().try_emplace(std::move(name), nullptr);
    // Of a key given twice a parser keeps one; another program might keep the other.
    if (!is_new) throw ParseError(file_, member->first, "is given twice");
    member_ = &member->second;
    return true;
  }
  bool start_object(std::size_t) {
    open(Json::object());
    return true;
  }
  bool end_object() { return close(); }
  bool start_array(std::size_t) {
    Json& list = open(Json::array());
    if (const std::size_t length = length_ahead(); length > 1) list.get_ref<Json::array_t&>().reserve(length);
    return true;
  }
  bool end_array() { return close(); }

  bool parse_error(std::size_t position, const std::string&, const Json::exception& error) {
    // One more than there are where the text ends too early.
    const char* const behind = text_.data() + position;
    if (behind > position_.end && position_.end != text_.data() + text_.size()) refuse_the_rest();
    if (open_.empty() && root_.is_array() && behind[-1] == '[')
      throw ParseError(
          file_, byte(behind),
          "a second list begins here; write one list of them all, [[...], [...]], or a text table");
    throw ParseError(file_, byte(behind), plain(error));
  }

 private:
  std::string byte(const char* at) const { return fmt::format("byte {}", begin_ + (at - text_.data())); }

  // What stands where the tokenizer was told that the text ends.
  [[noreturn]] void refuse_the_rest() const {
    if (position_.end == end_) throw ParseError(file_, byte(end_), "is a NUL, which no JSON has");
    throw internal::parse_error(file_, byte(position_.end - max_token_bytes),
                                "a text or number of more than {} bytes", max_token_bytes);
  }

  void allow_a_token() { position_.end = position_.at + std::min(end_ - position_.at, max_token_bytes); }

  void count_part() {
    if (++parts_ > max_json_parts)
      throw internal::parse_error(file_, byte(position_.at),
                                  "more than {} lists, objects and texts in one JSON", max_json_parts);
  }

  // Elements of the list that begins here, if it has no list or object in it; else of its beginning.
  std::size_t length_ahead() const {
    std::size_t length = 1;
    for (const char* at = position_.at; at != end_; ++at) {
      if (*at == ',') ++length;
      if (*at == ']' || *at == '[' || *at == '{') break;
    }
    return length;
  }

  template <class Value>
  bool put(Value&& value) {
    add(std::forward<Value>(value));
    return true;
  }

  template <class Value>
  Json& add(Value&& value) {
    allow_a_token();
    if (open_.empty()) return root_ = std::forward<Value>(value);
    if (open_.back()->is_object()) return *member_ = std::forward<Value>(value);
    return open_.back()->get_ref<Json::array_t&>().emplace_back(std::forward<Value>(value));
  }

  Json& open(Json&& container) {
    stop_if_asked();
    count_part();
    if (open_.size() == max_json_depth)
      throw internal::parse_error(file_, "", "nested deeper than {}", max_json_depth);
    Json& added = add(std::move(container));
    open_.push_back(&added);
    return added;
  }

  bool close() {
    allow_a_token();
    open_.pop_back();
    return true;
  }

  std::string_view text_;
  const std::string& file_;
  std::int64_t begin_;
  const char* end_;
  ReadPosition position_;
  Json root_;
  std::vector<Json*> open_;
  Json* member_ = nullptr;  // whose key was read last
  int parts_ = 0;
};

// Takes the keys of the outermost object and nothing else.
class OuterKeys : public nlohmann::json_sax<Json> {
 public:
  explicit OuterKeys(const std::function<bool(std::string_view)>& take) : take_(take) {}

  bool null() override { return depth_ > 0; }
  bool boolean(bool) override { return depth_ > 0; }
  bool number_integer(number_integer_t) override { return depth_ > 0; }
  bool number_unsigned(number_unsigned_t) override { return depth_ > 0; }
  bool number_float(number_float_t, const string_t&) override { return depth_ > 0; }
  bool string(string_t&) override { return depth_ > 0; }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return ++depth_ <= max_json_depth; }
  bool key(string_t& name) override { return depth_ > 1 || take_(name); }
  bool end_object() override { return --depth_ > 0; }
  bool start_array(std::size_t) override {
    if (depth_ == 0) return false;  // a list has no keys
    return ++depth_ <= max_json_depth;
  }
  bool end_array() override { return --depth_ > 0; }
  bool parse_error(std::size_t, const std::string&, const Json::exception&) override { return false; }

 private:
  const std::function<bool(std::string_view)>& take_;
  int depth_ = 0;
};

}  // namespace

JsonDocument parse_json(std::string_view text, const std::string& file, std::int64_t begin) {
  return JsonDocument(JsonBuilder(text, file, begin).build());
}

void for_each_outer_key(std::string_view text, const std::function<bool(std::string_view)>& take) {
  OuterKeys keys(take);
  Json::sax_parse(text.begin(), text.end(), &keys, Json::input_format_t::json, false);
}

JsonDocument read_json(const ByteSource& source) {
  return parse_json(read_text(source, "JSON"), source.name());
}

void require_json(const ByteSource& source, std::string_view what) {
  if (const FileFormat format = detect_format(source); format != FileFormat::json)
    throw parse_error(source.name(), "", "is {}; {} is JSON", name_of(format), what);
}

JsonDocument read_config_json(const ByteSource& source) {
  const std::string given(read_text(source, "JSON"));
  const std::string_view text = given;
  std::string read;
  read.reserve(text.size());
  bool in_string = false;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t taken = 1;
    if (in_string && text[at] == '\\' && at + 1 < text.size()) {
      taken = 2;
    } else if (text[at] == '"') {
      in_string = !in_string;
    } else if (!in_string) {
      for (const std::string_view word : {"-Infinity", "Infinity", "NaN"})
        if (text.substr(at, word.size()) == word) {
          // As long as the word, where it can be, so that errors name the bytes of the file.
          read += "null";
          if (word.size() > 4) read.append(word.size() - 4, ' ');
          at += word.size();
          taken = 0;
          break;
        }
    }
    read.append(text, at, taken);
    at += taken;
  }
  return parse_json(read, source.name());
}

}  // namespace evenkeel::internal
