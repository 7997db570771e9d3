#include "evenkeel/io/trace_file.h"

#include <charconv>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/array_trace.h"
#include "evenkeel/io/internal/array_writer.h"
#include "evenkeel/io/internal/find_routing.h"
#include "evenkeel/io/internal/formats.h"
#include "evenkeel/io/internal/layer_numbers.h"
#include "evenkeel/io/internal/nameless.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/internal/shape.h"

namespace evenkeel {

using namespace internal;

namespace {

constexpr std::string_view trace_format = "evenkeel.trace.v1";

// Finds the array of ids: by our own name for it, by the name in serving engines, or as the file's only
// array.
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

// The number of experts that the metadata states or, as in npz, an array; 0 if neither states it.
int stated_experts(const ArrayFile& file) {
  std::string text;
  if (const auto found = file.metadata().find("num_experts"); found != file.metadata().end())
    text = found->second;
  else if (const auto said = experts_said(file))
    text = std::to_string(*said);
  else
    return 0;
  int experts = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), experts);
  if (error != std::errc() || end != text.data() + text.size() || experts < 1 || experts > max_trace_experts)
    throw parse_error(file.name(), "num_experts", "'{}' is not a whole number in 1..{}", text,
                      max_trace_experts);
  return experts;
}

std::vector<std::int64_t> sequence_offsets(const ArrayFile& file, std::int64_t num_tokens) {
  if (file.find("sequence_offsets") == nullptr) return {};
  IntArray offsets = read_integers(file, "sequence_offsets");
  if (offsets.shape.size() != 1)
    throw parse_error(file.name(), "sequence_offsets", "shape {} is not [sequences + 1]",
                      to_text(offsets.shape));
  // Some traces list where sequences begin, without the end of the last one.
  if (!offsets.values.empty() && offsets.values.back() < num_tokens) offsets.values.push_back(num_tokens);
  return std::move(offsets.values);
}

// `stored` is the array in the file; `ids` has the usual order of dimensions.
TraceInfo info_of(const ArrayFile& file, const ArrayInfo& ids, const ArrayInfo& stored) {
  TraceInfo info;
  info.name = file.name();
  if (!is_integer(ids.dtype))
    throw parse_error(file.name(), ids.name, "is {}; expert ids are integers", name_of(ids.dtype));
  take_ids_shape(ids.shape, file.name(), ids.name, info);
  info.num_experts = stated_experts(file);
  info.layers = layers_in(file, info.num_layers);
  info.sequence_offsets = sequence_offsets(file, info.num_tokens);
  info.metadata = file.metadata();
  if (const ArrayInfo* weights = find_weights(file)) {
    if (weights->shape != stored.shape || !is_floating(weights->dtype))
      throw parse_error(file.name(), weights->name,
                        "is {} {}; weights must be floating-point, with the shape of the ids, {}",
                        name_of(weights->dtype), to_text(weights->shape), to_text(stored.shape));
    info.has_weights = true;
  }
  return info;
}

// An array [tokens, layers, k] for writing; bytes_of(batches) gives the bytes of each batch.
template <class Bytes>
ArrayToWrite array_to_write(std::string name, Dtype type, TraceReader& trace, const Bytes& bytes_of) {
  const TraceInfo& info = trace.info();
  const auto pieces = [&trace, bytes_of] {
    return [bytes_of, batches = std::make_shared<TraceBatches>(trace),
            piece = std::vector<std::byte>()]() mutable {
      piece = batches->next() ? bytes_of(*batches) : std::vector<std::byte>();
      return std::span<const std::byte>(piece);
    };
  };
  return {std::move(name), type, {info.num_tokens, info.num_layers, info.top_k}, pieces};
}

template <class Stored>
ArrayToWrite ids_as(Dtype type, TraceReader& trace) {
  return array_to_write("topk_ids", type, trace, [](TraceBatches& batches) {
    const std::vector<Stored> stored(batches.ids().begin(), batches.ids().end());
    const auto bytes = std::as_bytes(std::span(stored));
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  });
}

// The ids, in the narrowest type that holds every id and -1.
ArrayToWrite ids_to_write(TraceReader& trace) {
  if (trace.info().num_experts <= 128) return ids_as<std::int8_t>(Dtype::i8, trace);
  if (trace.info().num_experts <= 32768) return ids_as<std::int16_t>(Dtype::i16, trace);
  return ids_as<std::int32_t>(Dtype::i32, trace);
}

ArrayToWrite weights_to_write(TraceReader& trace) {
  return array_to_write("topk_weights", Dtype::f32, trace, [](TraceBatches& batches) {
    const auto bytes = std::as_bytes(batches.weights());
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  });
}

}  // namespace

std::unique_ptr<TraceReader> internal::open_trace_in(const ArrayFile& file, const ArrayInfo& stored,
                                                     const TraceOptions& options) {
  require_format(file, trace_format);
  auto ids = in_usual_order(file, stored, options.axes);
  TraceInfo info = info_of(file, ids->info(), stored);
  std::unique_ptr<ArrayReader> weights;
  if (info.has_weights) weights = in_usual_order(file, *find_weights(file), options.axes);
  const auto format = info.metadata.find("format");
  const bool ours = format != info.metadata.end() && format->second == trace_format;
  const auto kind = stored.name != "topk_ids" ? IdsAre::recorded
                    : ours                    ? IdsAre::as_written
                                              : IdsAre::literal;
  return open_array_trace(std::move(info), std::move(ids), std::move(weights), kind, options.num_experts);
}

std::unique_ptr<TraceReader> open_trace(const ByteSource& source, const TraceOptions& options) {
  const auto file = open_array_file(source);
  require_format(*file, trace_format);
  return open_trace_in(*file, find_ids(*file), options);
}

void write_trace(TraceReader& trace, const std::string& path, FileFormat format) {
  const TraceInfo& info = trace.info();
  if (format == FileFormat::json)
    throw InvalidArgument(path, "a trace is not written as JSON", "safetensors, npz or npy");
  const std::int64_t num_experts = info.num_experts;
  std::vector<ArrayToWrite> arrays{ids_to_write(trace)};
  if (format != FileFormat::npy) {
    if (info.has_weights) arrays.push_back(weights_to_write(trace));
    if (!info.sequence_offsets.empty())
      arrays.push_back(
          integers_to_write("sequence_offsets", {std::ssize(info.sequence_offsets)}, info.sequence_offsets));
    if (info.layers.known()) arrays.push_back(layers_to_write(info.layers));
    if (format == FileFormat::npz)
      arrays.push_back(integers_to_write("num_experts", {}, std::span(&num_experts, 1)));
  }
  std::map<std::string, std::string> metadata = info.metadata;
  metadata["format"] = trace_format;
  metadata["num_experts"] = std::to_string(num_experts);
  write_arrays(arrays, metadata, path, format);
}

}  // namespace evenkeel
