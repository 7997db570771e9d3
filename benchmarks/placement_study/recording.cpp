#include "benchmarks/placement_study/recording.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

#include "evenkeel/io/trace_file.h"

namespace evenkeel::study {

namespace {

std::size_t ids_per_token(const Recording& recording) {
  return static_cast<std::size_t>(recording.num_layers) * static_cast<std::size_t>(recording.top_k);
}

Recording like(const Recording& recording) {
  return {.num_layers = recording.num_layers,
          .top_k = recording.top_k,
          .num_experts = recording.num_experts,
          .ids = {},
          .sequence_offsets = {0}};
}

// Appends tokens begin..end of another recording as one sequence.
void append(Recording& to, const Recording& from, std::int64_t begin, std::int64_t end) {
  const auto at = [&](std::int64_t token) {
    return from.ids.begin() + token * static_cast<std::int64_t>(ids_per_token(from));
  };
  to.ids.insert(to.ids.end(), at(begin), at(end));
  to.sequence_offsets.push_back(to.sequence_offsets.back() + end - begin);
}

}  // namespace

MemoryTrace Recording::trace() const {
  return {{.num_layers = num_layers, .top_k = top_k, .num_experts = num_experts}, ids, {}, sequence_offsets};
}

Recording read_recording(const std::string& path, std::int64_t dropped) {
  const auto trace = open_trace(path);
  const TraceInfo& info = trace->info();
  Recording whole{.num_layers = info.num_layers,
                  .top_k = info.top_k,
                  .num_experts = info.num_experts,
                  .ids = std::vector<std::int32_t>(
                      static_cast<std::size_t>(info.num_tokens * info.assignments_per_token())),
                  .sequence_offsets = info.sequence_offsets};
  trace->read_ids({0, info.num_tokens}, whole.ids);
  if (whole.sequence_offsets.empty()) whole.sequence_offsets = {0, info.num_tokens};
  Recording kept = like(whole);
  for (std::size_t s = 0; s + 1 < whole.sequence_offsets.size(); ++s) {
    const std::int64_t end = whole.sequence_offsets[s + 1];
    append(kept, whole, std::min(whole.sequence_offsets[s] + dropped, end), end);
  }
  return kept;
}

Recording sequences(const Recording& recording, const std::vector<int>& chosen) {
  Recording part = like(recording);
  for (int s : chosen) {
    const auto i = static_cast<std::size_t>(s);
    append(part, recording, recording.sequence_offsets[i], recording.sequence_offsets[i + 1]);
  }
  return part;
}

Recording every(const Recording& recording, int first, int stride, int end) {
  std::vector<int> chosen;
  for (int s = first; s < std::min(end, recording.num_sequences()); s += stride) chosen.push_back(s);
  return sequences(recording, chosen);
}

Recording shuffled(const Recording& recording, std::uint64_t seed) {
  std::vector<int> order(static_cast<std::size_t>(recording.num_sequences()));
  std::iota(order.begin(), order.end(), 0);
  std::mt19937_64 random(seed);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);
  return sequences(recording, order);
}

Recording first_tokens(const Recording& recording, std::int64_t tokens) {
  Recording part = like(recording);
  for (std::size_t s = 0; s + 1 < recording.sequence_offsets.size(); ++s) {
    const std::int64_t begin = recording.sequence_offsets[s];
    if (begin >= tokens) break;
    append(part, recording, begin, std::min(recording.sequence_offsets[s + 1], tokens));
  }
  return part;
}

std::vector<Recording> windows(const Recording& recording, std::int64_t tokens) {
  std::vector<Recording> all;
  std::size_t sequence = 0;
  for (std::int64_t begin = 0; begin + tokens <= recording.num_tokens(); begin += tokens) {
    Recording& window = all.emplace_back(like(recording));
    for (std::int64_t at = begin; at < begin + tokens;) {
      while (recording.sequence_offsets[sequence + 1] <= at) ++sequence;
      const std::int64_t end = std::min(recording.sequence_offsets[sequence + 1], begin + tokens);
      append(window, recording, at, end);
      at = end;
    }
  }
  return all;
}

}  // namespace evenkeel::study
