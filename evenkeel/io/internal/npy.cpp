// npy: a magic string, a version, and a Python dictionary that describes the elements after it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/formats.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/internal/shape.h"

namespace evenkeel::internal {

namespace {

// numpy's own limit (max_header_size).
constexpr std::int64_t max_npy_header_bytes = 10'000;
constexpr std::size_t max_dimensions = 32;

// Reads the few Python literals a header may hold: {'descr': '<i4', 'fortran_order': False, 'shape': (3, 4),
// }.
class HeaderText {
 public:
  HeaderText(std::string_view text, const std::string& file, const std::string& where)
      : text_(text), file_(file), where_(where) {}

  void parse(ArrayInfo& array) {
    parse_dictionary(array);
    skip_space();
    if (!text_.empty()) fail("goes on behind its dictionary with '{}'", text_.substr(0, 16));
    if (!has_descr_ || !has_shape_ || !fortran_order_) fail("needs descr, fortran_order and shape");
    const auto longer =
        std::count_if(array.shape.begin(), array.shape.end(), [](auto length) { return length > 1; });
    if (*fortran_order_ && longer > 1) fail("is in Fortran order; save it with numpy.ascontiguousarray()");
  }

 private:
  void parse_dictionary(ArrayInfo& array) {
    expect('{');
    while (!accept('}')) {
      const std::string_view key = quoted();
      expect(':');
      if (key == "descr") {
        take_descr(array);
      } else if (key == "fortran_order") {
        fortran_order_ = boolean();
      } else if (key == "shape") {
        take_shape(array);
      } else {
        fail("unknown key '{}'", key);
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
  }

  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> why, Args&&... args) const {
    throw parse_error(file_, where_ + "header", why, std::forward<Args>(args)...);
  }

  void skip_space() {
    while (!text_.empty() && (text_.front() == ' ' || text_.front() == '\n')) text_.remove_prefix(1);
  }
  bool accept(char wanted) {
    skip_space();
    if (text_.empty() || text_.front() != wanted) return false;
    text_.remove_prefix(1);
    return true;
  }
  void expect(char wanted) {
    if (!accept(wanted)) fail("'{}' expected before '{}'", wanted, text_.substr(0, 16));
  }
  std::string_view quoted() {
    skip_space();
    const char quote = text_.empty() ? '\0' : text_.front();
    if (quote != '\'' && quote != '"') fail("a string expected before '{}'", text_.substr(0, 16));
    const std::size_t end = text_.find(quote, 1);
    if (end == std::string_view::npos) fail("a string does not end");
    const std::string_view inside = text_.substr(1, end - 1);
    text_.remove_prefix(end + 1);
    return inside;
  }
  bool boolean() {
    skip_space();
    const bool value = text_.starts_with("True");
    if (!value && !text_.starts_with("False")) fail("fortran_order is neither True nor False");
    text_.remove_prefix(value ? 4 : 5);
    return value;
  }

  void take_descr(ArrayInfo& array) {
    skip_space();
    if (text_.starts_with('[')) fail("holds records, not one element type");
    const std::string_view descr = quoted();
    const bool ordered =
        !descr.empty() && std::string_view("<>|=").find(descr.front()) != std::string_view::npos;
    const std::string_view kind = ordered ? descr.substr(1) : descr;
    if (kind.starts_with('O'))
      fail("holds Python objects, which are never read; save an integer or float array");
    const DtypeNames* const type = find_dtype(&DtypeNames::npy, kind);
    if (type == nullptr) fail("element type '{}' is not one this reads", descr);
    if (descr.front() == '>' && type->item_size > 1)
      fail("element type '{}' is big-endian; save it with astype('<{}')", descr, kind);
    array.dtype = type->type;
    has_descr_ = true;
  }

  void take_shape(ArrayInfo& array) {
    expect('(');
    array.shape.clear();
    while (!accept(')')) {
      skip_space();
      std::int64_t length = 0;
      const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), length);
      const bool padded = end - text_.data() > 1 && text_.front() == '0';  // no number to Python
      if (error != std::errc() || length < 0 || padded || array.shape.size() == max_dimensions)
        fail("a length of the shape expected before '{}'", text_.substr(0, 24));
      text_.remove_prefix(static_cast<std::size_t>(end - text_.data()));
      array.shape.push_back(length);
      if (!accept(',')) {
        expect(')');
        // To Python that is a number in brackets.
        if (array.shape.size() == 1) fail("shape ({}) is no tuple; right would be ({},)", length, length);
        break;
      }
    }
    has_shape_ = true;
  }

  std::string_view text_;
  const std::string& file_;
  const std::string& where_;
  bool has_descr_ = false;
  bool has_shape_ = false;
  std::optional<bool> fortran_order_;
};

}  // namespace

NpyHeader read_npy_header(const ArrayReader::Fetch& read, std::int64_t size, const std::string& file,
                          const std::string& where) {
  std::array<std::byte, 12> begin{};
  const auto prefix = [&](std::int64_t count) {
    if (size < count) throw ParseError(file, where + "header", "ends before its length");
    read(0, std::span(begin).first(static_cast<std::size_t>(count)));
  };
  prefix(10);
  const std::string_view magic(reinterpret_cast<const char*>(begin.data()), 6);
  if (magic != "\x93NUMPY") throw ParseError(file, where + "byte 0", "does not begin like npy");
  const int version = std::to_integer<int>(begin[6]);
  const int minor = std::to_integer<int>(begin[7]);
  if (version < 1 || version > 3 || minor != 0)
    throw parse_error(file, where + "byte 6", "npy version {}.{}; 1.0, 2.0 and 3.0 are read", version, minor);
  const std::int64_t length_end = version == 1 ? 10 : 12;
  prefix(length_end);
  std::int64_t length = 0;
  std::memcpy(&length, &begin[8], static_cast<std::size_t>(length_end - 8));
  if (length > max_npy_header_bytes || length > size - length_end)
    throw parse_error(file, where + "byte 8", "a header of {} bytes is claimed in {}", length, size);
  std::vector<std::byte> bytes(static_cast<std::size_t>(length_end + length));
  read(0, bytes);

  NpyHeader header;
  header.data_begin = length_end + length;
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  HeaderText(text.substr(static_cast<std::size_t>(length_end)), file, where).parse(header.array);
  const auto elements = count_elements(header.array.shape, item_size(header.array.dtype));
  if (!elements || *elements * item_size(header.array.dtype) != size - header.data_begin)
    throw parse_error(file, where + "shape", "{} of {} does not fit the {} bytes there are",
                      to_text(header.array.shape), name_of(header.array.dtype), size - header.data_begin);
  header.array.num_elements = *elements;
  return header;
}

std::unique_ptr<ArrayFile> open_npy(const ByteSource& source) {
  const auto read = [&](std::int64_t offset, std::span<std::byte> out) { source.read(offset, out); };
  NpyHeader header = read_npy_header(read, source.size(), source.name(), "");
  std::vector<ArrayFile::Stored> arrays{{std::move(header.array), bytes_at(source, header.data_begin)}};
  return std::make_unique<ArrayFile>(source.name(), FileFormat::npy, source.size(), std::move(arrays));
}

std::string npy_header_text(Dtype type, std::span<const std::int64_t> shape) {
  std::string dictionary = fmt::format(
      "{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}{}), }}", item_size(type) == 1 ? '|' : '<',
      dtypes()[static_cast<std::size_t>(type)].npy, fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
  // The elements begin at a multiple of 64, after a line end.
  constexpr std::size_t before = 10;
  dictionary.append(63 - (before + dictionary.size()) % 64, ' ');
  dictionary.push_back('\n');
  std::string text("\x93NUMPY\x01\x00", 8);
  text.push_back(static_cast<char>(dictionary.size() & 0xff));
  text.push_back(static_cast<char>(dictionary.size() >> 8));
  return text + dictionary;
}

}  // namespace evenkeel::internal
