#include "evenkeel/io/trace_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/array_trace.h"
#include "evenkeel/io/internal/array_writer.h"
#include "evenkeel/io/internal/bare_array.h"
#include "evenkeel/io/internal/layer_numbers.h"
#include "evenkeel/io/internal/shape.h"

namespace evenkeel {

namespace {

constexpr std::string_view trace_format = "evenkeel.trace.v1";

// The ids: by their own name, by the name serving engines give them, or the only array there is.
const ArrayInfo& find_ids(const ArrayFile& file) {
  for (const char* name : {"topk_ids", "routed_experts"})
    if (const ArrayInfo* found = file.find(name)) return *found;
  if (file.arrays().size() == 1) return file.arrays().front();
  return file.at("topk_ids");
}

const ArrayInfo* find_weights(const ArrayFile& file) {
  const ArrayInfo* weights = file.find("topk_weights");
  return weights != nullptr ? weights : file.find("weights");
}

void take_shape(const ArrayFile& file, const ArrayInfo& ids, TraceInfo& info) {
  if (!is_integer(ids.dtype))
    throw ParseError(file.name(), ids.name,
                     fmt::format("is {}; expert ids are integers", name_of(ids.dtype)));
  internal::take_ids_shape(ids.shape, file.name(), ids.name, info);
}

int experts_from_text(const ArrayFile& file, const std::string& text) {
  int experts = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), experts);
  if (error != std::errc() || end != text.data() + text.size() || experts < 1 || experts > max_trace_experts)
    throw ParseError(file.name(), "num_experts",
                     fmt::format("'{}' is not a whole number in 1..{}", text, max_trace_experts));
  return experts;
}

// From the metadata, or from an array of one number, which is how npz can say it. 0: not said.
int stated_experts(const ArrayFile& file) {
  if (const auto found = file.metadata().find("num_experts"); found != file.metadata().end())
    return experts_from_text(file, found->second);
  const ArrayInfo* array = file.find("num_experts");
  if (array == nullptr || array->num_elements != 1) return 0;
  return experts_from_text(file, std::to_string(read_integers(file, "num_experts").values.front()));
}

std::vector<std::int64_t> sequence_offsets(const ArrayFile& file, std::int64_t num_tokens) {
  if (file.find("sequence_offsets") == nullptr) return {};
  IntArray offsets = read_integers(file, "sequence_offsets");
  if (offsets.shape.size() != 1)
    throw ParseError(file.name(), "sequence_offsets",
                     fmt::format("shape {} is not [sequences + 1]", internal::to_text(offsets.shape)));
  // Some traces list where sequences begin and leave the end of the last to be known.
  if (!offsets.values.empty() && offsets.values.back() < num_tokens) offsets.values.push_back(num_tokens);
  return std::move(offsets.values);
}

TraceInfo info_of(const ArrayFile& file) {
  const auto format = file.metadata().find("format");
  if (format != file.metadata().end() && format->second.starts_with("evenkeel.") &&
      format->second != trace_format)
    throw ParseError(file.name(), "format", fmt::format("is {}, not {}", format->second, trace_format));
  const ArrayInfo& ids = find_ids(file);
  TraceInfo info;
  info.name = file.name();
  take_shape(file, ids, info);
  info.num_experts = stated_experts(file);
  info.layers = internal::layers_in(file, info.num_layers);
  info.sequence_offsets = sequence_offsets(file, info.num_tokens);
  info.metadata = file.metadata();
  if (const ArrayInfo* weights = find_weights(file)) {
    if (weights->shape != ids.shape || !is_floating(weights->dtype))
      throw ParseError(
          file.name(), weights->name,
          fmt::format("is {} {}; weights are floating, of the shape of the ids, {}", name_of(weights->dtype),
                      internal::to_text(weights->shape), internal::to_text(ids.shape)));
    info.has_weights = true;
  }
  return info;
}

// The narrowest type that holds every id and -1.
Dtype id_type(int num_experts) {
  if (num_experts <= 128) return Dtype::i8;
  return num_experts <= 32768 ? Dtype::i16 : Dtype::i32;
}

template <class Stored>
void narrow(std::span<const std::int32_t> ids, std::vector<std::byte>& piece) {
  piece.resize(ids.size() * sizeof(Stored));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const Stored stored = static_cast<Stored>(ids[i]);
    std::memcpy(piece.data() + i * sizeof(Stored), &stored, sizeof(Stored));
  }
}

internal::ArrayToWrite ids_to_write(TraceReader& trace, const std::vector<std::int64_t>& shape) {
  const Dtype type = id_type(trace.info().num_experts);
  const auto pieces = [&trace, type] {
    return [type, batches = std::make_shared<TraceBatches>(trace)](std::vector<std::byte>& piece) {
      if (!batches->next()) return false;
      if (type == Dtype::i8) narrow<std::int8_t>(batches->ids(), piece);
      if (type == Dtype::i16) narrow<std::int16_t>(batches->ids(), piece);
      if (type == Dtype::i32) narrow<std::int32_t>(batches->ids(), piece);
      return true;
    };
  };
  return {"topk_ids", type, shape, pieces};
}

internal::ArrayToWrite weights_to_write(TraceReader& trace, const std::vector<std::int64_t>& shape) {
  const auto pieces = [&trace] {
    return [batches = std::make_shared<TraceBatches>(trace)](std::vector<std::byte>& piece) {
      if (!batches->next()) return false;
      const auto bytes = std::as_bytes(batches->weights());
      piece.assign(bytes.begin(), bytes.end());
      return true;
    };
  };
  return {"topk_weights", Dtype::f32, shape, pieces};
}

}  // namespace

std::unique_ptr<TraceReader> open_trace(const std::string& path, const TraceOptions& options) {
  return open_trace(open_source(path), options);
}

std::unique_ptr<TraceReader> open_trace(std::shared_ptr<const ByteSource> source,
                                        const TraceOptions& options) {
  const auto file = open_array_file(std::move(source));
  TraceInfo info = info_of(*file);
  const ArrayInfo& ids = find_ids(*file);
  std::unique_ptr<ArrayReader> weights;
  if (info.has_weights) weights = file->reader(find_weights(*file)->name);
  if (ids.name == "routed_experts") internal::require_layer_order(ids.shape, file->name(), ids.name);
  const bool ours = info.metadata.contains("format");
  const auto kind = ours                     ? internal::IdsAre::as_written
                    : ids.name == "topk_ids" ? internal::IdsAre::literal
                                             : internal::IdsAre::recorded;
  return internal::open_array_trace(std::move(info), file->reader(ids.name), std::move(weights), kind,
                                    options.num_experts);
}

void write_trace(TraceReader& trace, const std::string& path, FileFormat format) {
  const TraceInfo& info = trace.info();
  if (format == FileFormat::json)
    throw InvalidArgument(path, "a trace is not written as JSON", "safetensors, npz or npy");
  const std::vector<std::int64_t> shape{info.num_tokens, info.num_layers, info.top_k};
  const std::int64_t num_experts = info.num_experts;
  std::vector<internal::ArrayToWrite> arrays{ids_to_write(trace, shape)};
  if (format != FileFormat::npy) {
    if (info.has_weights) arrays.push_back(weights_to_write(trace, shape));
    if (!info.sequence_offsets.empty())
      arrays.push_back(internal::integers_to_write("sequence_offsets", {std::ssize(info.sequence_offsets)},
                                                   info.sequence_offsets));
    if (info.layers.known()) arrays.push_back(internal::layers_to_write(info.layers));
    if (format == FileFormat::npz)
      arrays.push_back(internal::integers_to_write("num_experts", {}, std::span(&num_experts, 1)));
  }
  std::map<std::string, std::string> metadata = info.metadata;
  metadata["format"] = trace_format;
  metadata["num_experts"] = std::to_string(num_experts);
  internal::write_arrays(arrays, metadata, path, format);
}

}  // namespace evenkeel
