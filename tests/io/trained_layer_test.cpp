// A trained layer is read only where all its numbers are.
#include "evenkeel/io/trained_layer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "evenkeel/base/error.h"
#include "tests/io/support.h"
#include "tests/routing/message.h"

namespace evenkeel {
namespace {

struct FloatTensor {
  const char* name;
  std::vector<std::int64_t> shape;
};

// 2 experts, 4 x 3, 3 tokens, top-1.
const std::vector<FloatTensor> kFloatTensors = {{"experts.gate_up.weight", {2, 6, 4}},
                                                {"experts.down.weight", {2, 4, 3}},
                                                {"router.weight", {2, 4}},
                                                {"input", {3, 4}},
                                                {"output", {3, 4}},
                                                {"topk_weights", {3, 1}}};

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (std::int64_t length : shape) text += (text.empty() ? "" : ",") + std::to_string(length);
  return "[" + text + "]";
}

// A file of doubles, of which one tensor's last is `value`.
std::string layer_with(const std::string& bad, double value) {
  std::string header, data;
  const auto add = [&](const std::string& name, const char* type, const std::vector<std::int64_t>& shape,
                       const std::string& bytes) {
    header += (header.empty() ? "{\"" : ",\"") + name + R"(":{"dtype":")" + type + R"(","shape":)" +
              shape_text(shape) + R"(,"data_offsets":[)" + std::to_string(data.size()) + "," +
              std::to_string(data.size() + bytes.size()) + "]}";
    data += bytes;
  };
  for (const FloatTensor& tensor : kFloatTensors) {
    std::size_t count = 1;
    for (std::int64_t length : tensor.shape) count *= static_cast<std::size_t>(length);
    std::vector<double> values(count, 0.5);
    if (tensor.name == bad) values.back() = value;
    add(tensor.name, "F64", tensor.shape,
        std::string(reinterpret_cast<const char*>(values.data()), count * sizeof(double)));
  }
  add("topk_ids", "U8", {3, 1}, std::string("\0\1\0", 3));
  return safetensors_text(header + "}", data);
}

TEST(ATrainedLayer, IsRefusedWithThePlaceOfWhatIsNoFiniteNumberInAnyTensor) {
  EXPECT_EQ(read_trained_layer(source_of(layer_with("", 0))).gate_up.back(), 0.5f);
  for (const FloatTensor& tensor : kFloatTensors)
    for (double value : {std::numeric_limits<double>::quiet_NaN(), 1e300, -1e300,
                         -std::numeric_limits<double>::infinity()}) {
      const std::string what =
          message_of<ParseError>([&] { read_trained_layer(source_of(layer_with(tensor.name, value))); });
      std::string last;
      for (std::int64_t length : tensor.shape)
        last += (last.empty() ? "" : ", ") + std::to_string(length - 1);
      EXPECT_NE(what.find(std::string(tensor.name) + ": element [" + last + "] is "), std::string::npos)
          << what;
    }
}

}  // namespace
}  // namespace evenkeel
