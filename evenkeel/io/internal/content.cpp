#include "evenkeel/io/internal/content.h"

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/count_lines.h"
#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/internal/sglang_map.h"
#include "evenkeel/io/internal/text.h"
#include "evenkeel/io/internal/text_table.h"
#include "evenkeel/io/internal/torch_file.h"
#include "evenkeel/io/internal/trtllm_yaml.h"
#include "evenkeel/io/vllm_statistics.h"

namespace evenkeel::internal {

namespace {

// Nothing but these keys decides.
constexpr std::array<std::pair<std::string_view, Content>, 11> deciding = {{
    {"physical_to_logical", Content::placement},
    {"physical_to_logical_map", Content::sglang_placement},
    {"initial_global_assignments", Content::vllm_placement},
    {"record_type", Content::vllm_placement},
    {"p2l_map", Content::vllm_statistics},
    {"moe_layer_count", Content::vllm_ascend_placement},
    {"layer_list", Content::vllm_ascend_placement},
    {"top_indices", Content::megatron_trace},
    {"logical_count", Content::counts},
    {"loads", Content::loads},
    {"counts", Content::loads},
}};

// Looks at the keys of the outermost object, and stops at the first that decides.
class KeyWatch final : public nlohmann::json_sax<Json> {
 public:
  Content found = Content::unknown;

  bool key(std::string& name) override {
    if (depth_ != 1) return true;
    const auto* known =
        std::find_if(deciding.begin(), deciding.end(), [&](const auto& pair) { return pair.first == name; });
    if (known == deciding.end()) return true;
    found = known->second;
    return false;
  }
  bool start_object(std::size_t) override { return ++depth_ > 0; }
  bool end_object() override { return --depth_ >= 0; }
  bool start_array(std::size_t) override { return ++depth_ > 0; }
  bool end_array() override { return --depth_ >= 0; }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  int depth_ = 0;
};

std::string beginning_of(const ByteSource& source, std::int64_t most) {
  std::string text(static_cast<std::size_t>(std::min(source.size(), most)), '\0');
  source.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

// Of JSON lines the first.
Content content_of_json(const ByteSource& source) {
  for (std::int64_t most : {std::int64_t{1} << 20, max_text_bytes}) {
    KeyWatch watch;
    Json::sax_parse(beginning_of(source, most), &watch, nlohmann::detail::input_format_t::json, false);
    if (watch.found != Content::unknown || source.size() <= most) return watch.found;
  }
  return Content::unknown;
}

// Of JSON lines the others are looked at too.
Content content_of_lines(Content first, const ByteSource& source) {
  if (first == Content::vllm_placement) {
    const VllmRecords records = find_vllm_records(source);
    return records.statistics && !records.placement ? Content::vllm_statistics : first;
  }
  const bool may_be_counts = first == Content::unknown || first == Content::counts || first == Content::loads;
  return may_be_counts && is_json_lines(source) ? Content::count_lines : first;
}

}  // namespace

Content detect_content(const std::shared_ptr<const ByteSource>& source) {
  if (source->size() == 0) throw ParseError(source->name(), "", "is empty");
  const std::string head = beginning_of(*source, 4096);
  if (head.starts_with("PK\x03\x04") || head.starts_with("PK\x05\x06")) {
    if (!is_torch_file(source)) return Content::arrays;
    return is_sglang_map_file(source) ? Content::sglang_placement : Content::sglang_recording;
  }
  const std::string_view text = without_mark(head);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return Content::unknown;
  if (text[first] == '{') return content_of_lines(content_of_json(*source), *source);
  if (text[first] == '[') return Content::counts;
  if (begins_like_trtllm_yaml(text)) return Content::trtllm_placement;
  return begins_like_table(text) ? Content::counts : Content::unknown;
}

}  // namespace evenkeel::internal
