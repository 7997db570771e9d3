// Reads numpy's files. npy: a magic string, a version, a Python dictionary that describes the elements, and
// the elements. npz: a zip archive of npy files. Members are streamed, never unpacked whole, since the sizes
// in an archive may be wrong.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "evenkeel/io/internal/formats.h"
#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/internal/shape.h"
#include "evenkeel/io/internal/zip_archive.h"

namespace evenkeel::internal {

namespace {

// numpy's own limit (max_header_size).
constexpr std::int64_t max_npy_header_bytes = 10'000;

// Converts a Python dictionary of strings, booleans and tuples of numbers to JSON of the same length:
// {'descr': '<i4', 'fortran_order': False, 'shape': (3, 4), }.
std::string json_of(std::string text) {
  char quote = '\0';
  char* comma = nullptr;  // the last comma, if only space follows it so far
  for (char& c : text) {
    if (quote != '\0') {
      if (c != quote) continue;
      c = '"';
      quote = '\0';
      continue;
    }
    if (c == '(') c = '[';
    if (c == ')') c = ']';
    if (std::string_view("TtFf").find(c) != std::string_view::npos) c ^= 'a' ^ 'A';  // False becomes false
    if (comma != nullptr && (c == ']' || c == '}')) *comma = ' ';
    if (c != ' ' && c != '\n') comma = c == ',' ? &c : nullptr;
    if (c == '\'' || c == '"') quote = std::exchange(c, '"');
  }
  return text;
}

Dtype dtype_of(const JsonField& header) {
  const Json& said = *header["descr"];
  if (said.is_array()) header.fail("holds records, not one element type");
  const std::string descr = said.is_string() ? said.get<std::string>() : said.dump();
  const bool ordered =
      !descr.empty() && std::string_view("<>|=").find(descr.front()) != std::string_view::npos;
  const std::string kind = descr.substr(ordered ? 1 : 0);
  if (kind.starts_with('O'))
    header.fail("holds Python objects, which are never read; save an integer or float array");
  const DtypeNames* const type = find_dtype(&DtypeNames::npy, kind);
  if (type == nullptr)
    header.fail("element type '{}' is not supported; save an integer or float array", descr);
  if (descr.front() == '>' && type->item_size > 1)
    header.fail("element type '{}' is big-endian; save it with astype('<{}')", descr, kind);
  return type->type;
}

// The length of numpy's text type, such as '<U12'; nullopt for other types.
std::optional<std::int64_t> text_length(const Json& descr) {
  const std::string said = descr.is_string() ? descr.get<std::string>() : "";
  std::int64_t length = 0;
  const char* const end = said.data() + said.size();
  if (!said.starts_with("<U") || std::from_chars(said.data() + 2, end, length).ptr != end || length < 1)
    return std::nullopt;
  return length;
}

// The header of an npy file or of a member of an npz.
struct NpyHeader {
  ArrayInfo array;
  bool is_text = false;  // one text, whose elements are its characters
  std::int64_t data_begin = 0;
};

NpyHeader header_of(const std::string& text, const std::string& file, const std::string& where) {
  const Json json = Json::parse(json_of(text), nullptr, false);
  const JsonField header(json, file, where + "header");
  // The JSON parser would take a NUL for the end of the text.
  if (!json.is_object() || json.size() != 3 || !header.find("descr") || !header.find("fortran_order") ||
      !header.find("shape") || text.find('\0') != std::string::npos)
    header.fail("needs descr, fortran_order and shape and nothing else, but is {}", text.substr(0, 120));
  const auto characters = header["shape"]->empty() ? text_length(*header["descr"]) : std::nullopt;
  const Dtype dtype = characters ? Dtype::u32 : dtype_of(header);
  const std::size_t begin = std::min(text.find('('), text.size());
  const std::string tuple = text.substr(begin, text.find(')', begin) - begin);
  const bool has_comma = tuple.find(',') != std::string::npos;
  // In Python, (3) is a number, not a tuple.
  if (tuple.empty() || tuple.find_first_not_of("(0123456789, \n") != std::string::npos ||
      (header["shape"]->size() < 2 && has_comma != (header["shape"]->size() == 1)))
    header.fail("shape is not a tuple of whole numbers, such as (3,) or (3, 4)");
  ArrayInfo array{.name = "", .dtype = dtype, .shape = header["shape"].integers()};
  if (characters) array.shape = {*characters};
  const Json& fortran = *header["fortran_order"];
  if (!fortran.is_boolean()) header.fail("fortran_order is neither True nor False");
  const auto longer = std::ranges::count_if(array.shape, [](auto length) { return length > 1; });
  if (fortran.get<bool>() && longer > 1)
    header.fail("is in Fortran order; save it with numpy.ascontiguousarray()");
  return {.array = std::move(array), .is_text = characters.has_value()};
}

// `size` is the size of the whole npy, which `read` reads. Throws ParseError; `where` is the prefix of places
// in messages ("topk_ids." or empty).
NpyHeader read_npy_header(const ArrayReader::Fetch& read, std::int64_t size, const std::string& file,
                          const std::string& where) {
  std::array<std::byte, 12> begin{};
  const auto prefix = [&](std::int64_t count) {
    if (size < count) throw ParseError(file, where + "header", "is cut off by the end of the file");
    read(0, std::span(begin).first(static_cast<std::size_t>(count)));
  };
  prefix(10);
  const std::string_view magic(reinterpret_cast<const char*>(begin.data()), 6);
  if (magic != "\x93NUMPY") throw ParseError(file, where + "byte 0", "does not begin like npy");
  const int version = std::to_integer<int>(begin[6]);
  const int minor = std::to_integer<int>(begin[7]);
  if (version < 1 || version > 3 || minor != 0)
    throw parse_error(file, where + "byte 6", "is npy version {}.{}; only 1.0, 2.0 and 3.0 are read", version,
                      minor);
  const std::int64_t length_end = version == 1 ? 10 : 12;
  prefix(length_end);
  std::int64_t length = 0;
  std::memcpy(&length, &begin[8], static_cast<std::size_t>(length_end - 8));
  if (length > max_npy_header_bytes || length > size - length_end)
    throw parse_error(file, where + "byte 8", "claims a header of {} bytes in a file of {} bytes", length,
                      size);
  std::string text(static_cast<std::size_t>(length_end + length), '\0');
  read(0, std::as_writable_bytes(std::span(text)));
  NpyHeader header = header_of(text.substr(static_cast<std::size_t>(length_end)), file, where);
  header.data_begin = length_end + length;
  const auto elements = count_elements(header.array.shape, item_size(header.array.dtype));
  if (!elements || *elements * item_size(header.array.dtype) != size - header.data_begin)
    throw parse_error(file, where + "shape", "{} of {} does not fit the {} bytes of data",
                      to_text(header.array.shape), name_of(header.array.dtype), size - header.data_begin);
  header.array.num_elements = *elements;
  return header;
}

constexpr int max_members = 1024;

struct OpenedMember {
  ArrayFile::Stored array;
  bool is_text = false;
};

OpenedMember open_member(const std::shared_ptr<const ZipArchive>& archive, const ZipArchive::Member& member,
                         const std::string& name) {
  const std::string& file = archive->name();
  if (member.encrypted) throw ParseError(file, name, "is encrypted");
  if (!member.stored() && !member.deflated())
    throw parse_error(file, name, "is compressed by zip method {}; only stored and deflated are read",
                      member.method);
  ZipMemberReader reader(archive, member, name);
  const auto read = [&](std::int64_t offset, std::span<std::byte> out) { reader.read(offset, out); };
  NpyHeader header = read_npy_header(read, member.size, file, name + ".");
  header.array.name = name;
  const auto open = [=, &member, begin = header.data_begin] {
    const auto opened = std::make_shared<ZipMemberReader>(archive, member, name);
    return [=](std::int64_t first, std::span<std::byte> out) {
      opened->require_intact();
      opened->read(begin + first, out);
    };
  };
  return {{std::move(header.array), open}, header.is_text};
}

// The text in `array`, the only array of the file.
std::string text_in(const ArrayFile& file, const std::string& array) {
  std::string text;
  for (const std::int64_t character : read_integers(file, array).values) {
    if (character < 1 || character > 127)
      throw parse_error(file.name(), array, "is a text with character code {}; only ASCII is read",
                        character);
    text.push_back(static_cast<char>(character));
  }
  return text;
}

}  // namespace

std::unique_ptr<ArrayFile> open_npy(const ByteSource& source) {
  const auto read = [&](std::int64_t offset, std::span<std::byte> out) { source.read(offset, out); };
  NpyHeader header = read_npy_header(read, source.size(), source.name(), "");
  if (header.is_text) throw ParseError(source.name(), "", "holds text; only arrays of numbers are read");
  std::vector<ArrayFile::Stored> arrays{{std::move(header.array), bytes_at(source, header.data_begin)}};
  return std::make_unique<ArrayFile>(source.name(), FileFormat::npy, source.size(), std::move(arrays));
}

std::unique_ptr<ArrayFile> open_npz(const ByteSource& source) {
  const auto archive = std::make_shared<const ZipArchive>(source, max_members);
  std::vector<ArrayFile::Stored> arrays;
  std::map<std::string, std::string> texts;
  std::set<std::string> names;
  const std::int64_t max_whole_bytes =
      (std::int64_t{1} << 20) + 64 * std::min(source.size(), std::int64_t{1} << 50);
  for (const ZipArchive::Member& member : archive->members()) {
    if (!member.name.ends_with(".npy")) continue;
    const std::string name = member.name.substr(0, member.name.size() - 4);
    if (!names.insert(name).second) throw ParseError(source.name(), name, "is in the archive twice");
    OpenedMember opened = open_member(archive, member, name);
    if (opened.is_text)
      texts[name] = text_in({source.name(), FileFormat::npz, max_whole_bytes, {opened.array}}, name);
    else
      arrays.push_back(std::move(opened.array));
  }
  return std::make_unique<ArrayFile>(source.name(), FileFormat::npz, max_whole_bytes, std::move(arrays),
                                     std::move(texts));
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
