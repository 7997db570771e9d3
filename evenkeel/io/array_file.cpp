#include "evenkeel/io/array_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/base/stop.h"
#include "evenkeel/io/internal/formats.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/internal/shape.h"
#include "evenkeel/io/internal/text.h"

namespace evenkeel {

using namespace internal;

namespace {

// Elements converted at a time.
constexpr std::size_t block_elements = std::size_t{1} << 16;

// Safetensors start with a header length below 4 GiB and a brace; a JSON text has no zero bytes.
bool begins_like_safetensors(std::string_view head) {
  return head.size() >= 9 && head.substr(4, 4) == std::string_view("\0\0\0\0", 4) && head[8] == '{';
}

bool begins_like_json(std::string_view head) {
  head = without_mark(head);
  const std::size_t first = head.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && (head[first] == '{' || head[first] == '[');
}

}  // namespace

std::string_view name_of(FileFormat format) {
  constexpr std::array<std::string_view, 4> names = {"safetensors", "npy", "npz", "json"};
  return names[static_cast<std::size_t>(format)];
}

FileFormat detect_format(const ByteSource& source) {
  if (source.size() == 0) throw ParseError(source.name(), "", "is empty");
  const std::string head = beginning_of(source, 64);
  if (head.starts_with("\x93NUMPY")) return FileFormat::npy;
  if (head.starts_with("PK\x03\x04") || head.starts_with("PK\x05\x06")) return FileFormat::npz;
  if (begins_like_safetensors(head)) return FileFormat::safetensors;
  if (begins_like_json(head)) return FileFormat::json;
  throw ParseError(source.name(), "byte 0", "is neither safetensors, npz, npy, JSON nor a table of numbers");
}

// Reads block by block: convert(first, elements) converts the bytes in block_ to elements.
template <class Out, class Convert>
void ArrayReader::read_blocks(std::int64_t first, std::span<Out> out, const Convert& convert) {
  if (first < 0 || first > info_.num_elements || std::ssize(out) > info_.num_elements - first)
    throw parse_error(file_, info_.name, "elements {}..{} asked for, but there are {}", first,
                      first + std::ssize(out), info_.num_elements);
  while (!out.empty()) {
    stop_if_asked();
    const std::size_t count = std::min(out.size(), block_elements);
    block_.resize(count * static_cast<std::size_t>(item_size(info_.dtype)));
    fetch_(first * item_size(info_.dtype), block_);
    convert(first, out.first(count));
    out = out.subspan(count);
    first += static_cast<std::int64_t>(count);
  }
}

void ArrayReader::read(std::int64_t first, std::span<std::int64_t> out) {
  if (!is_integer(info_.dtype))
    throw parse_error(file_, info_.name, "is {}, not integers", name_of(info_.dtype));
  read_whole(first, out);
}

void ArrayReader::read_whole(std::int64_t first, std::span<std::int64_t> out) {
  read_blocks(first, out, [&](std::int64_t begin, std::span<std::int64_t> block) {
    if (const auto broken = to_whole(info_.dtype, block_, block))
      throw parse_error(file_, info_.name, "element {} {}", begin + static_cast<std::int64_t>(*broken),
                        is_integer(info_.dtype) ? "is above 2^63-1" : "is not an exact whole number");
  });
}

void ArrayReader::read(std::int64_t first, std::span<float> out) {
  read_blocks(first, out,
              [&](std::int64_t, std::span<float> block) { to_float(info_.dtype, block_, block); });
}

void ArrayReader::read(std::int64_t first, std::span<double> out) {
  read_blocks(first, out,
              [&](std::int64_t, std::span<double> block) { to_double(info_.dtype, block_, block); });
}

ArrayFile::ArrayFile(std::string name, FileFormat format, std::int64_t max_whole_bytes,
                     std::vector<Stored> arrays, std::map<std::string, std::string> metadata)
    : name_(std::move(name)),
      format_(format),
      max_whole_bytes_(max_whole_bytes),
      metadata_(std::move(metadata)) {
  for (Stored& array : arrays) {
    by_name_.try_emplace(array.info.name, arrays_.size());
    arrays_.push_back(std::move(array.info));
    open_.push_back(std::move(array.open));
  }
}

const ArrayInfo* ArrayFile::find(std::string_view array) const {
  const auto found = by_name_.find(array);
  return found == by_name_.end() ? nullptr : &arrays_[found->second];
}

const ArrayInfo& ArrayFile::at(std::string_view array) const {
  if (const ArrayInfo* info = find(array)) return *info;
  std::vector<std::string_view> names;
  for (const ArrayInfo& info : arrays_) names.push_back(info.name);
  throw parse_error(
      name_, std::string(array), "no such array; {}",
      names.empty() ? "the file has no arrays" : fmt::format("the file has {}", fmt::join(names, ", ")));
}

std::unique_ptr<ArrayReader> ArrayFile::reader(std::string_view array) const {
  return std::make_unique<ArrayReader>(name_, at(array), fetch(array));
}

ArrayReader::Fetch ArrayFile::fetch(std::string_view array) const {
  return open_[static_cast<std::size_t>(&at(array) - arrays_.data())]();
}

std::unique_ptr<ArrayFile> open_array_file(const ByteSource& source) {
  switch (detect_format(source)) {
    case FileFormat::safetensors:
      return open_safetensors(source);
    case FileFormat::npy:
      return open_npy(source);
    case FileFormat::npz:
      return open_npz(source);
    case FileFormat::json:
      break;
  }
  throw ParseError(source.name(), "", "is JSON, but safetensors, npz or npy is needed");
}

namespace {

template <class Number, class Read>
WholeArray<Number> read_all(const ArrayFile& file, std::string_view name, const Read& read) {
  const ArrayInfo& info = file.at(name);
  if (info.num_elements > file.max_whole_bytes() / item_size(info.dtype))
    throw parse_error(file.name(), info.name,
                      "{} of {} needs far more memory than the size of the file allows; is the file damaged?",
                      to_text(info.shape), name_of(info.dtype));
  WholeArray<Number> array{info.shape, std::vector<Number>(static_cast<std::size_t>(info.num_elements))};
  read(*file.reader(name), std::span(array.values));
  return array;
}

// Reads the numbers in the type of `out`.
constexpr auto read_as_they_are = [](ArrayReader& reader, auto out) { reader.read(0, out); };

}  // namespace

FloatArray read_floats(const ArrayFile& file, std::string_view array) {
  return read_all<float>(file, array, read_as_they_are);
}

DoubleArray read_doubles(const ArrayFile& file, std::string_view array) {
  return read_all<double>(file, array, read_as_they_are);
}

IntArray read_integers(const ArrayFile& file, std::string_view array) {
  return read_all<std::int64_t>(file, array, read_as_they_are);
}

IntArray read_whole_numbers(const ArrayFile& file, std::string_view array) {
  return read_all<std::int64_t>(
      file, array, [](ArrayReader& reader, std::span<std::int64_t> out) { reader.read_whole(0, out); });
}

std::string name_of_counts(const ArrayFile& file) {
  if (file.find("counts") != nullptr) return "counts";
  if (file.arrays().size() == 1) return file.arrays().front().name;
  throw ParseError(file.name(), "counts",
                   "is missing, and there is more than one array; name the array of counts 'counts'");
}

void internal::require_format(const ArrayFile& file, std::string_view format) {
  const auto stated = file.metadata().find("format");
  if (stated != file.metadata().end() && stated->second.starts_with("evenkeel.") && stated->second != format)
    throw parse_error(file.name(), "format", "is {}, not {}", stated->second, format);
}

}  // namespace evenkeel
