// How a JSON text becomes a document: counted, then parsed into its place.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "evenkeel/base/check.h"
#include "evenkeel/base/error.h"
#include "evenkeel/base/printable.h"
#include "evenkeel/base/stop.h"
#include "evenkeel/io/array_file.h"
#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/internal/json_scan.h"

namespace evenkeel::internal {

namespace {

// A tokenizer holds a token several times over.
constexpr std::size_t max_token_bytes = std::size_t{16} << 20;

// Sizes that a text will need as a document. They hold as far as the text is JSON: up to there, the scan and
// the parser see the same tokens.
struct JsonSizes {
  std::vector<std::uint32_t> children;  // of each container, in the order in which they open
  std::size_t values = 0;               // of all containers together
  std::size_t text_bytes = 0;
};

JsonSizes sizes_of(std::string_view text, const std::string& file, std::int64_t begin) {
  JsonSizes sizes;
  const auto opens = [](char c) { return c == '[' || c == '{'; };
  sizes.children.reserve(static_cast<std::size_t>(std::count_if(text.begin(), text.end(), opens)));
  std::vector<std::size_t> open;
  scan_json(text, [&](const JsonToken& token) {
    if (token.end - token.begin > max_token_bytes)
      throw parse_error(file, fmt::format("byte {}", begin + static_cast<std::int64_t>(token.begin)),
                        "a text or number of more than {} bytes", max_token_bytes);
    if (token.kind == JsonToken::Kind::close) {
      if (!open.empty()) open.pop_back();
      return token.depth > 0;
    }
    if (!open.empty()) {
      ++sizes.children[open.back()];
      ++sizes.values;
    }
    if (token.kind == JsonToken::Kind::text) sizes.text_bytes += token.end - token.begin;
    if (token.kind == JsonToken::Kind::open) {
      open.push_back(sizes.children.size());
      sizes.children.push_back(0);
    }
    return token.depth <= max_json_depth;
  });
  return sizes;
}

// "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error ..." without its label, and
// not much more of a long token than shows which it is.
std::string plain(const nlohmann::json::exception& error) {
  constexpr std::size_t most = 400;
  std::string_view text = error.what();
  if (const std::size_t label = text.find("] "); label != std::string_view::npos)
    text.remove_prefix(label + 2);
  return shortened(text, most);
}

}  // namespace

// Takes nlohmann-json's events.
class JsonBuilder {
 public:
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = nlohmann::json::string_t;
  using binary_t = nlohmann::json::binary_t;

  JsonBuilder(const JsonSizes& sizes, const std::string& file, std::int64_t begin)
      : sizes_(sizes), file_(file), begin_(begin) {
    document_.values_.reset(new Json[sizes.values]);
    document_.texts_.reset(new char[sizes.text_bytes]);
  }

  JsonDocument take() { return std::move(document_); }
  // The bytes up to a syntax error and with it, one more than there are where the text ends too early.
  std::size_t error_at() const { return error_at_; }

  bool null() {
    place(Json::Kind::null);
    return true;
  }
  bool boolean(bool value) {
    place(Json::Kind::boolean).content_.boolean = value;
    return true;
  }
  bool number_integer(number_integer_t value) {
    place(Json::Kind::integer).content_.integer = value;
    return true;
  }
  bool number_unsigned(number_unsigned_t value) {
    place(Json::Kind::unsigned_integer).content_.unsigned_integer = value;
    return true;
  }
  bool number_float(number_float_t value, const string_t&) {
    place(Json::Kind::real).content_.real = value;
    return true;
  }
  bool string(const string_t& value) { return place_text(value); }
  bool binary(const binary_t&) { return false; }
  bool key(const string_t& value) { return place_text(value); }
  bool start_object(std::size_t) { return open(Json::Kind::object); }
  bool start_array(std::size_t) { return open(Json::Kind::list); }

  bool end_object() {
    Json& object = close();
    object.size_ /= 2;
    sort_members(object);
    return true;
  }
  bool end_array() {
    close();
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception& error) {
    error_at_ = position;
    throw ParseError(file_, fmt::format("byte {}", begin_ + static_cast<std::int64_t>(position)),
                     plain(error));
  }

 private:
  struct Open {
    Json* self;
    Json* next;  // where its next child goes
    const Json* end;
  };

  // The next value, in the container that is open.
  Json& next() {
    if (open_.empty()) return document_;
    Open& in = open_.back();
    EVENKEEL_CHECK(in.next != in.end);
    return *in.next++;
  }

  Json& place(Json::Kind kind) {
    Json& value = next();
    value.kind_ = kind;
    value.size_ = 0;
    value.content_.integer = 0;
    return value;
  }

  bool place_text(const std::string& text) {
    EVENKEEL_CHECK(text.size() <= sizes_.text_bytes - text_bytes_);
    char* const at = document_.texts_.get() + text_bytes_;
    std::copy(text.begin(), text.end(), at);
    text_bytes_ += text.size();
    Json& value = place(Json::Kind::text);
    value.content_.text = at;
    value.size_ = static_cast<std::uint32_t>(text.size());
    return true;
  }

  bool open(Json::Kind kind) {
    stop_if_asked();
    if (open_.size() == max_json_depth)
      throw internal::parse_error(file_, "", "nested deeper than {}", max_json_depth);
    Json& value = place(kind);
    Json* const children = document_.values_.get() + values_;
    const std::uint32_t count = sizes_.children[containers_++];
    values_ += count;
    value.content_.children = children;
    open_.push_back({.self = &value, .next = children, .end = children + count});
    return true;
  }

  Json& close() {
    const Open closed = open_.back();
    open_.pop_back();
    closed.self->size_ = static_cast<std::uint32_t>(closed.next - closed.self->content_.children);
    return *closed.self;
  }

  // Of a key given twice a parser keeps one; another program might keep the other.
  void sort_members(const Json& object) {
    Json* const members = document_.values_.get() + (object.content_.children - document_.values_.get());
    const std::size_t count = object.size_;
    const auto key = [&](std::size_t member) { return members[2 * member].text(); };
    order_.resize(count);
    std::iota(order_.begin(), order_.end(), std::uint32_t{0});
    const auto before = [&](std::uint32_t a, std::uint32_t b) { return key(a) < key(b); };
    if (!std::is_sorted(order_.begin(), order_.end(), before)) {
      std::sort(order_.begin(), order_.end(), before);
      reorder(members);
    }
    for (std::size_t member = 1; member < count; ++member)
      if (key(member - 1) == key(member)) throw ParseError(file_, std::string(key(member)), "is given twice");
  }

  // Member order_[i] goes to place i, along the cycles of the permutation.
  void reorder(Json* members) {
    for (std::uint32_t first = 0; first < order_.size(); ++first) {
      if (order_[first] == first) continue;
      const Json key = members[2 * first];
      const Json value = members[2 * first + 1];
      std::uint32_t to = first;
      for (std::uint32_t from = order_[to]; from != first; from = order_[to]) {
        members[2 * to] = members[2 * from];
        members[2 * to + 1] = members[2 * from + 1];
        order_[to] = to;
        to = from;
      }
      members[2 * to] = key;
      members[2 * to + 1] = value;
      order_[to] = to;
    }
  }

  const JsonSizes& sizes_;
  const std::string& file_;
  std::int64_t begin_;
  JsonDocument document_;
  std::size_t values_ = 0;  // given to containers so far
  std::size_t containers_ = 0;
  std::size_t text_bytes_ = 0;
  std::size_t error_at_ = 0;
  std::vector<Open> open_;
  std::vector<std::uint32_t> order_;
};

JsonDocument parse_json(std::string_view text, const std::string& file, std::int64_t begin) {
  EVENKEEL_CHECK(text.size() < std::numeric_limits<std::uint32_t>::max());
  // The tokenizer would take a NUL for the end of the text.
  const std::size_t nul = text.find('\0');
  const std::string_view parsed = text.substr(0, nul);
  const JsonSizes sizes = sizes_of(parsed, file, begin);
  JsonBuilder builder(sizes, file, begin);
  try {
    nlohmann::json::sax_parse(parsed.begin(), parsed.end(), &builder);
  } catch (const ParseError&) {
    // Where the text before a NUL only ends too early, the NUL is why.
    if (nul == std::string_view::npos || builder.error_at() <= nul) throw;
  }
  if (nul != std::string_view::npos)
    throw ParseError(file, fmt::format("byte {}", begin + static_cast<std::int64_t>(nul)),
                     "is a NUL, which no JSON has");
  return builder.take();
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
