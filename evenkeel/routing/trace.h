// Routing traces: which experts every token chose in every layer, read in batches so that a trace of any
// length needs the memory of one batch.
//
// A TraceReader knows the shape of its trace and reads any range of tokens, from a file (io/trace_file.h) or
// from two vectors (MemoryTrace, for tests and small data).
//
//   std::unique_ptr<TraceReader> trace = open_trace("trace.safetensors");
//   for (TraceBatches batches(*trace); batches.next();) count(batches.ids());      // [tokens, layers, k]
//   LayerRouting routing = trace->read_layer(LayerId(4), {0, 4096});               // [tokens, k], one layer
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "evenkeel/base/index.h"
#include "evenkeel/routing/layer_numbers.h"

namespace evenkeel {

// Marks an entry of a token's top-k that is not an assignment.
inline constexpr std::int32_t no_expert = -1;

// Limits that keep a damaged file from requesting unbounded memory. They are far above every known model.
inline constexpr std::int64_t max_trace_experts = 65536;
inline constexpr std::int64_t max_trace_assignments_per_token = std::int64_t{1} << 20;  // layers x k

struct TokenRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const { return end - begin; }
  friend bool operator==(const TokenRange&, const TokenRange&) = default;
};

struct TraceInfo {
  std::string name;  // for messages: the path of its file
  std::int64_t num_tokens = 0;
  int num_layers = 0;
  int top_k = 0;
  int num_experts = 0;  // 0 if not known yet; open_trace() never leaves it at 0
  LayerNumbers layers;  // the layer of the model for each row, if the source says it
  bool has_weights = false;
  // Sequence i is tokens [sequence_offsets[i], sequence_offsets[i + 1]). Empty if the trace does not say.
  std::vector<std::int64_t> sequence_offsets;
  std::map<std::string, std::string> metadata;  // the file's own keys and values
  std::vector<std::string> notes;               // where the reading departs from the file's content, and why

  std::int64_t assignments_per_token() const { return std::int64_t{num_layers} * top_k; }
};

// The token ranges of all nonempty sequences. Empty if the trace does not say where its sequences begin.
std::vector<TokenRange> sequences_of(const TraceInfo& info);

// The top-k of a range of tokens in one layer.
struct LayerRouting {
  int top_k = 0;
  std::vector<std::int32_t> ids;  // [tokens, k]; no_expert where there is no assignment
  std::vector<float> weights;     // [tokens, k]; empty where the trace has none

  std::int64_t num_tokens() const { return static_cast<std::int64_t>(ids.size()) / top_k; }
};

class TraceReader {
 public:
  virtual ~TraceReader() = default;
  TraceReader(const TraceReader&) = delete;
  TraceReader& operator=(const TraceReader&) = delete;

  const TraceInfo& info() const { return info_; }

  // Reads the expert ids of the tokens in `range` into `ids`, [tokens, layers, k]. Throws InvalidArgument if
  // the range or the size of `ids` is wrong, ParseError if an id is neither no_expert nor in
  // 0..num_experts-1.
  void read_ids(TokenRange range, std::span<std::int32_t> ids);
  // Reads the top-k weights in the same way. Throws InvalidArgument if the trace has no weights, ParseError
  // if a weight is not finite.
  void read_weights(TokenRange range, std::span<float> weights);
  // One layer of a range of tokens. Reads in batches, so memory holds the result and one batch.
  LayerRouting read_layer(LayerId layer, TokenRange range);

  // After this call, ids must be below `num_experts`. Throws InvalidArgument unless it is in
  // 1..max_trace_experts.
  void set_num_experts(int num_experts);
  // Throws InvalidArgument if there are layer numbers, but not one for each layer.
  void set_layers(LayerNumbers layers);
  // The largest id plus one (1 for a trace without assignments); reads the whole trace.
  int largest_id_plus_one();

 protected:
  // Throws InvalidArgument or ParseError if the shape is impossible or above the limits of this header.
  explicit TraceReader(TraceInfo info);

  // Reads ids as stored, without checks: the caller checks them afterwards, and has checked `range` and the
  // size of `ids`.
  virtual void fetch_ids(TokenRange range, std::span<std::int64_t> ids) = 0;
  virtual void fetch_weights(TokenRange range, std::span<float> weights) = 0;

 private:
  void require_range(TokenRange range, std::size_t size) const;
  [[noreturn]] void refuse_id(std::int64_t id, TokenRange range, std::size_t at) const;

  TraceInfo info_;
  std::vector<std::int64_t> fetched_;
};

// Reads a trace from beginning to end, in batches.
class TraceBatches {
 public:
  // If `tokens_per_batch` is 0, a batch has about a million assignments. `reader` must outlive this object.
  explicit TraceBatches(TraceReader& reader, std::int64_t tokens_per_batch = 0);
  TraceBatches(TraceReader& reader, TokenRange range, std::int64_t tokens_per_batch = 0);

  // Reads the next batch. Returns false at the end of the trace.
  bool next();
  TokenRange range() const { return batch_; }
  std::span<const std::int32_t> ids() const { return ids_; }  // [tokens, layers, k]
  std::span<const float> weights();                           // the same shape; read on the first call

 private:
  TraceReader* reader_;
  TokenRange whole_;
  std::int64_t tokens_per_batch_;
  TokenRange batch_;
  std::vector<std::int32_t> ids_;
  std::vector<float> weights_;
  bool weights_read_ = false;
};

// A trace held in memory: ids [tokens, layers, k], and weights of the same size or none.
class MemoryTrace final : public TraceReader {
 public:
  struct Shape {
    int num_layers = 1;
    int top_k = 1;
    int num_experts = 0;  // 0: take the largest id plus one
  };
  MemoryTrace(Shape shape, std::vector<std::int32_t> ids, std::vector<float> weights = {},
              std::vector<std::int64_t> sequence_offsets = {}, std::string name = "trace");

 private:
  void fetch_ids(TokenRange range, std::span<std::int64_t> ids) override;
  void fetch_weights(TokenRange range, std::span<float> weights) override;

  std::vector<std::int32_t> ids_;
  std::vector<float> weights_;
};

}  // namespace evenkeel
