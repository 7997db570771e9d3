#include "evenkeel/io/internal/content.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/find_routing.h"
#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/internal/readers.h"
#include "evenkeel/io/internal/server_placements.h"
#include "evenkeel/io/internal/table.h"
#include "evenkeel/io/internal/text.h"
#include "evenkeel/io/internal/torch_file.h"

namespace evenkeel::internal {

namespace {

// Keys that tell what a file is. The first one in the file decides, except as content_of_keys() says.
constexpr std::array<std::pair<std::string_view, Content>, 8> deciding = {{
    {"physical_to_logical", Content::placement},
    {sglang_map_key, Content::sglang_placement},
    {assignments_key, Content::trtllm_placement},
    {"record_type", Content::vllm_placement},
    {"p2l_map", Content::vllm_statistics},
    {"moe_layer_count", Content::vllm_ascend_placement},
    {"layer_list", Content::vllm_ascend_placement},
    {"top_indices", Content::megatron_trace},
}};

Content content_of_key(std::string_view name) {
  if (name == "loads" || std::ranges::find(count_names, name) != count_names.end())
    return Content::json_counts;
  const auto* known = std::ranges::find(deciding, name, [](const auto& pair) { return pair.first; });
  return known == deciding.end() ? Content::unknown : known->second;
}

// The content by the keys of the outermost object. Placements of vLLM and TensorRT-LLM have a key in common;
// vLLM's also has a record_type, before or after it. In the same way vLLM's statistics have p2l_map in
// addition to counts.
Content content_of_keys(std::string_view text) {
  Content found = Content::unknown;
  const auto outweighs = [&](Content other) {
    return other == Content::vllm_placement ||
           (other == Content::vllm_statistics && found == Content::json_counts);
  };
  for_each_outer_key(text, [&](std::string_view name) {
    const Content known = content_of_key(name);
    if (known == Content::unknown) return true;
    if (found == Content::unknown || outweighs(known)) found = known;
    return found == Content::trtllm_placement || found == Content::json_counts;
  });
  return found;
}

// TensorRT-LLM's map may be anywhere in a larger file of options.
bool has_trtllm_map(const ByteSource& source) {
  return source.size() <= max_text_bytes && mentions(source, assignments_key);
}

// The keys of the first object decide. In JSON lines, later lines are inspected too.
Content content_of_json(const ByteSource& source) {
  const std::string head = beginning_of(source, std::int64_t{1} << 20);
  Content found = content_of_keys(head);
  const bool is_open = found == Content::unknown || found == Content::trtllm_placement;
  if (is_open && source.size() > std::ssize(head))
    found = content_of_keys(beginning_of(source, max_text_bytes));
  if (found == Content::unknown && has_trtllm_map(source)) return Content::trtllm_placement;
  if (found == Content::vllm_placement) {
    const bool has_placement = mentions(source, vllm_mapping_type) || !mentions(source, vllm_stats_type);
    return has_placement ? found : Content::vllm_statistics;
  }
  const bool may_be_counts = found == Content::unknown || found == Content::json_counts;
  return may_be_counts && is_json_lines(head) ? Content::count_lines : found;
}

// Whether a file of torch.save is SGLang's map of physical to logical experts, rather than a recording.
bool is_sglang_map_file(const ByteSource& source) {
  try {
    const TorchFile file(source);
    return file.pickle().find(file.pickle().root(), sglang_map_key).has_value();
  } catch (const ParseError&) {
    return false;  // its reader will report the error
  }
}

}  // namespace

Content detect_content(const ByteSource& source) {
  if (source.is_folder()) return Content::folder;
  if (source.size() == 0) throw ParseError(source.name(), "", "is empty");
  const std::string head = beginning_of(source, 4096);
  if (head.starts_with("PK\x03\x04") || head.starts_with("PK\x05\x06")) {
    if (!is_torch_file(source)) return Content::arrays;
    return is_sglang_map_file(source) ? Content::sglang_placement : Content::sglang_recording;
  }
  const std::string_view text = without_mark(head);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return Content::unknown;
  if (text[first] == '{') return content_of_json(source);
  if (text[first] == '[') return Content::json_counts;
  const bool is_text = std::ranges::all_of(text, [](char c) {
    return static_cast<unsigned char>(c) >= ' ' || c == '\t' || c == '\r' || c == '\n';
  });
  if (!is_text) return Content::unknown;
  if (text.find("num_slots:") != std::string_view::npos || has_trtllm_map(source))
    return Content::trtllm_placement;
  return begins_like_table(text) ? Content::table : Content::unknown;
}

}  // namespace evenkeel::internal
