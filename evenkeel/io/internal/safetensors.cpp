// safetensors: eight bytes of header length, a JSON header, and the arrays without a gap between them.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/formats.h"
#include "evenkeel/io/internal/safetensors_header.h"
#include "evenkeel/io/internal/shape.h"

namespace evenkeel::internal {

namespace {

constexpr std::array<std::pair<std::string_view, Dtype>, 13> kSafetensorsDtypes{{
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

ArrayInfo array_of(const SafetensorsTensor& tensor, const std::string& file) {
  const auto found = std::find_if(kSafetensorsDtypes.begin(), kSafetensorsDtypes.end(),
                                  [&](const auto& known) { return known.first == tensor.dtype; });
  if (found == kSafetensorsDtypes.end())
    throw ParseError(file, tensor.name, fmt::format("dtype {} is not one this reads", tensor.dtype));
  const Dtype dtype = found->second;
  const auto elements = count_elements(tensor.shape, item_size(dtype));
  if (!elements || *elements * item_size(dtype) != tensor.bytes())
    throw ParseError(file, tensor.name,
                     fmt::format("shape {} of {} does not fit its {} bytes", to_text(tensor.shape),
                                 name_of(dtype), tensor.bytes()));
  return {.name = tensor.name, .dtype = dtype, .shape = tensor.shape, .num_elements = *elements};
}

class SafetensorsFile final : public ArrayFile {
 public:
  explicit SafetensorsFile(std::shared_ptr<const ByteSource> source)
      : ArrayFile(source->name(), FileFormat::safetensors), source_(std::move(source)) {
    const SafetensorsHeader header = read_safetensors_header(*source_);
    metadata_ = header.metadata;
    for (const SafetensorsTensor& tensor : header.tensors) {
      arrays_.push_back(array_of(tensor, name()));
      begins_.emplace(tensor.name, header.data_begin + tensor.begin);
    }
    require_gapless(header, *source_);
  }

  std::int64_t max_whole_bytes() const override { return source_->size(); }

 private:
  std::unique_ptr<ArrayReader> open(const ArrayInfo& array) const override {
    return std::make_unique<PlainArrayReader>(source_, array, begins_.at(array.name));
  }

  std::shared_ptr<const ByteSource> source_;
  std::map<std::string, std::int64_t> begins_;  // in the file
};

}  // namespace

std::unique_ptr<ArrayFile> open_safetensors(std::shared_ptr<const ByteSource> source) {
  return std::make_unique<SafetensorsFile>(std::move(source));
}

}  // namespace evenkeel::internal
