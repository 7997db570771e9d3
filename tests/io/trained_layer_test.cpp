// A trained layer is read only if all its numbers are valid.
#include "evenkeel/io/trained_layer.h"

#include <limits>
#include <map>
#include <numeric>

#include "tests/io/support.h"

namespace evenkeel {
namespace {

// 2 experts, hidden 4, intermediate 3, 3 tokens, top-1.
const std::map<std::string, std::vector<std::int64_t>> kFloatTensors = {{"experts.gate_up.weight", {2, 6, 4}},
                                                                        {"experts.down.weight", {2, 4, 3}},
                                                                        {"router.weight", {2, 4}},
                                                                        {"input", {3, 4}},
                                                                        {"output", {3, 4}},
                                                                        {"topk_weights", {3, 1}}};

// A file of doubles in which the last number of tensor `bad` is `value`.
ByteSource layer_with(const std::string& bad, double value) {
  std::vector<FileTensor> tensors = {{"topk_ids", "U8", {3, 1}, std::string("\0\1\0", 3)}};
  for (const auto& [name, shape] : kFloatTensors) {
    std::vector<double> values(static_cast<std::size_t>(std::accumulate(
                                   shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>())),
                               0.5);
    if (name == bad) values.back() = value;
    tensors.push_back(
        {name, "F64", shape,
         std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double))});
  }
  return source_of(safetensors_of(tensors));
}

TEST(ATrainedLayer, IsRefusedWithThePlaceOfWhatIsNoFiniteNumberInAnyTensor) {
  EXPECT_EQ(read_trained_layer(layer_with("", 0)).gate_up.back(), 0.5f);
  for (const auto& [name, shape] : kFloatTensors)
    for (double value : {std::numeric_limits<double>::quiet_NaN(), 1e300, -1e300,
                         -std::numeric_limits<double>::infinity()}) {
      std::string last;
      for (std::int64_t length : shape) last += (last.empty() ? "" : ", ") + std::to_string(length - 1);
      EXPECT_THAT(message_of<ParseError>([&] { read_trained_layer(layer_with(name, value)); }),
                  testing::HasSubstr(name + ": element [" + last + "] is "));
    }
}

}  // namespace
}  // namespace evenkeel
