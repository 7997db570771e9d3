// safetensors: eight bytes of header length, a JSON header, and the arrays without a gap between them.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/formats.h"
#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/internal/shape.h"

namespace evenkeel::internal {

namespace {

constexpr std::int64_t length_bytes = 8;
// The format's own limit.
constexpr std::int64_t max_header_bytes = 100'000'000;

constexpr std::array<std::pair<std::string_view, Dtype>, 13> dtypes{{
    {"BOOL", Dtype::b8},
    {"U8", Dtype::u8},
    {"I8", Dtype::i8},
    {"U16", Dtype::u16},
    {"I16", Dtype::i16},
    {"U32", Dtype::u32},
    {"I32", Dtype::i32},
    {"U64", Dtype::u64},
    {"I64", Dtype::i64},
    {"F16", Dtype::f16},
    {"BF16", Dtype::bf16},
    {"F32", Dtype::f32},
    {"F64", Dtype::f64},
}};

struct Placed {
  ArrayInfo array;
  std::int64_t begin = 0;  // from the start of the data
  std::int64_t end = 0;
};

Json read_header(const ByteSource& source, std::int64_t& data_begin) {
  std::array<std::byte, length_bytes> bytes{};
  source.read(0, bytes);
  const std::uint64_t length = std::bit_cast<std::uint64_t>(bytes);
  if (length > max_header_bytes || static_cast<std::int64_t>(length) > source.size() - length_bytes)
    throw ParseError(source.name(), "byte 0",
                     fmt::format("a header of {} bytes is claimed in a file of {}", length, source.size()));
  std::string text(static_cast<std::size_t>(length), '\0');
  source.read(length_bytes, std::as_writable_bytes(std::span(text)));
  data_begin = length_bytes + static_cast<std::int64_t>(length);
  Json header = parse_json(text, source.name(), length_bytes);
  if (!header.is_object()) throw ParseError(source.name(), "header", "is not a JSON object");
  return header;
}

Dtype dtype_of(const Json& array, const std::string& file, const std::string& key) {
  const auto stated = array.find("dtype");
  if (stated == array.end() || !stated->is_string()) throw ParseError(file, key, "has no dtype");
  const auto& text = stated->get_ref<const std::string&>();
  const auto found =
      std::find_if(dtypes.begin(), dtypes.end(), [&](const auto& known) { return known.first == text; });
  if (found == dtypes.end()) throw ParseError(file, key, fmt::format("dtype {} is not one this reads", text));
  return found->second;
}

Placed placed_array(const std::string& key, const Json& array, std::int64_t data_bytes,
                    const std::string& file) {
  if (!array.is_object()) throw ParseError(file, key, "is not described by a JSON object");
  Placed placed;
  placed.array.name = key;
  placed.array.dtype = dtype_of(array, file, key);
  const auto shape = array.find("shape");
  const auto offsets = array.find("data_offsets");
  if (shape == array.end() || offsets == array.end())
    throw ParseError(file, key, "has no shape or no data_offsets");
  placed.array.shape = integers(*shape, file, key + ".shape");
  const auto ends = integers(*offsets, file, key + ".data_offsets");
  if (ends.size() != 2 || ends[0] < 0 || ends[0] > ends[1] || ends[1] > data_bytes)
    throw ParseError(file, key + ".data_offsets",
                     fmt::format("{} is not a range of the {} bytes of data", to_text(ends), data_bytes));
  placed.begin = ends[0];
  placed.end = ends[1];
  const auto elements = count_elements(placed.array.shape, item_size(placed.array.dtype));
  if (!elements || *elements * item_size(placed.array.dtype) != placed.end - placed.begin)
    throw ParseError(file, key,
                     fmt::format("shape {} of {} does not fit its {} bytes", to_text(placed.array.shape),
                                 name_of(placed.array.dtype), placed.end - placed.begin));
  placed.array.num_elements = *elements;
  return placed;
}

// The format allows neither gaps nor overlaps: sorted by place, each array begins where the one before it
// ends.
void require_gapless(std::vector<Placed> arrays, std::int64_t data_bytes, const std::string& file) {
  std::sort(arrays.begin(), arrays.end(), [](const Placed& a, const Placed& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::int64_t at = 0;
  for (const Placed& placed : arrays) {
    if (placed.begin != at)
      throw ParseError(file, placed.array.name + ".data_offsets",
                       fmt::format("begins at {}, but the array before it ends at {}", placed.begin, at));
    at = placed.end;
  }
  if (at != data_bytes)
    throw ParseError(file, "", fmt::format("the arrays end at {} of {} bytes of data", at, data_bytes));
}

class SafetensorsFile final : public ArrayFile {
 public:
  explicit SafetensorsFile(std::shared_ptr<const ByteSource> source)
      : ArrayFile(source->name(), FileFormat::safetensors), source_(std::move(source)) {
    const Json header = read_header(*source_, data_begin_);
    const std::int64_t data_bytes = source_->size() - data_begin_;
    for (const auto& [key, value] : header.items()) {
      if (key == "__metadata__") {
        take_metadata(value);
      } else {
        placed_.push_back(placed_array(key, value, data_bytes, name()));
        arrays_.push_back(placed_.back().array);
      }
    }
    require_gapless(placed_, data_bytes, name());
  }

  std::int64_t max_whole_bytes() const override { return source_->size(); }

 private:
  void take_metadata(const Json& metadata) {
    if (!metadata.is_object()) throw ParseError(name(), "__metadata__", "is not a JSON object");
    for (const auto& [key, value] : metadata.items()) {
      if (!value.is_string()) throw ParseError(name(), "__metadata__." + key, "is not a string");
      metadata_.emplace(key, value.get<std::string>());
    }
  }

  std::unique_ptr<ArrayReader> open(const ArrayInfo& array) const override {
    const auto found = std::find_if(placed_.begin(), placed_.end(),
                                    [&](const Placed& placed) { return placed.array.name == array.name; });
    return std::make_unique<PlainArrayReader>(source_, array, data_begin_ + found->begin);
  }

  std::shared_ptr<const ByteSource> source_;
  std::int64_t data_begin_ = 0;
  std::vector<Placed> placed_;
};

}  // namespace

std::unique_ptr<ArrayFile> open_safetensors(std::shared_ptr<const ByteSource> source) {
  return std::make_unique<SafetensorsFile>(std::move(source));
}

}  // namespace evenkeel::internal
