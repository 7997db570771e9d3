#include "evenkeel/io/internal/axes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <span>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/internal/shape.h"
#include "evenkeel/io/limits.h"
#include "evenkeel/routing/trace.h"

namespace evenkeel::internal {

std::ptrdiff_t Order::num_axes() const {
  return std::ranges::count(axes, ',') + 1;
}

std::int64_t Order::length(const std::vector<std::int64_t>& shape, std::string_view axis) const {
  std::string_view rest = axes;
  for (const std::int64_t each : shape) {
    const std::string_view name = rest.substr(0, rest.find(','));
    if (name == axis) return each;
    rest.remove_prefix(std::min(rest.size(), name.size() + 1));
  }
  return 1;
}

const Order* find_order(std::string_view axes) {
  const auto found = std::ranges::find(orders, axes, &Order::axes);
  return found == orders.end() ? nullptr : &*found;
}

const Order& checked_order(std::string_view axes, const std::vector<std::int64_t>& shape, bool one_step,
                           const std::string& file) {
  const Order* order = find_order(axes);
  if (order == nullptr) {
    std::vector<std::string_view> names;
    for (const Order& each : orders) names.push_back(each.axes);
    throw InvalidArgument("axes", fmt::format("'{}'", axes), fmt::format("{}", fmt::join(names, "; ")));
  }
  if (order->is_of_one_step && !one_step)
    throw InvalidArgument("axes", fmt::format("{}, which are of one step, and layers are wanted", axes),
                          "an order with layers");
  if (order->num_axes() != std::ssize(shape))
    throw InvalidArgument("axes",
                          fmt::format("{}, but {} has {} dimension{}, {}", axes, file, shape.size(),
                                      shape.size() == 1 ? "" : "s", to_text(shape)),
                          "an order of as many");
  return *order;
}

bool is_short_form(std::string_view axes) {
  return axes == "trace" || axes == "counts";
}

bool is_order_of_tokens(std::string_view axes) {
  const Order* order = find_order(axes);
  return order != nullptr && order->is_of_tokens;
}

bool is_order_of_counts(std::string_view axes) {
  const Order* order = find_order(axes);
  return order != nullptr && !order->is_of_tokens;
}

void require_layer_order(const std::vector<std::int64_t>& shape, const std::string& file,
                         const std::string& key) {
  constexpr std::int64_t most_layers = 256;
  if (shape.size() != 3 || shape[1] <= most_layers || shape[0] > most_layers) return;
  throw InvalidArgument("axes",
                        fmt::format("{}: {}: shape {} has {} layers in the middle, more than any model", file,
                                    key, to_text(shape), shape[1]),
                        "its order, such as layers,tokens,k; of counts, one in which the layers come second");
}

std::unique_ptr<ArrayReader> in_usual_order(const ArrayFile& file, const ArrayInfo& array,
                                            std::string_view axes) {
  const Order& order = checked_order(axes, array.shape, false, file.name());
  const std::int64_t tokens = order.length(array.shape, "tokens");
  const std::int64_t layers = order.length(array.shape, "layers");
  const std::int64_t k = order.length(array.shape, "k");
  if (axes == "tokens,layers,k" || axes == "tokens,k") return file.reader(array.name);
  ArrayInfo info = array;
  info.shape = {tokens, layers, k};
  // Each layer has a reader of its own, since a compressed array is read from its beginning to its end.
  const bool by_layer = axes.starts_with("layers");
  const std::int64_t num_readers = by_layer ? layers : 1;
  if (num_readers > max_layers || layers * k < 1 || layers * k > max_trace_assignments_per_token)
    throw parse_error(file.name(), array.name, "shape {} is not of 1..{} assignments a token",
                      to_text(array.shape), max_trace_assignments_per_token);
  const std::int64_t size = item_size(array.dtype);
  std::vector<std::shared_ptr<ArrayReader::Fetch>> fetch;
  for (std::int64_t i = 0; i < num_readers; ++i)
    fetch.push_back(std::make_shared<ArrayReader::Fetch>(file.fetch(array.name)));
  // Of whole tokens, [tokens, layers, k] in bytes.
  const auto whole_tokens = [=](std::int64_t begin, std::int64_t count, std::vector<std::byte>& out) {
    std::vector<std::byte> read(static_cast<std::size_t>(count * layers * k * size));
    const std::int64_t of_layer = count * k * size;
    for (std::int64_t i = 0; i < num_readers; ++i)
      if (by_layer)
        (*fetch[static_cast<std::size_t>(i)])((i * tokens + begin) * k * size,
                                              std::span(read).subspan(static_cast<std::size_t>(i * of_layer),
                                                                      static_cast<std::size_t>(of_layer)));
      else
        (*fetch[0])(begin* layers* k* size, read);
    out.resize(read.size());
    for (std::int64_t t = 0; t < count; ++t)
      for (std::int64_t l = 0; l < layers; ++l)
        for (std::int64_t j = 0; j < k; ++j) {
          const std::int64_t from = by_layer ? (l * count + t) * k + j : (t * k + j) * layers + l;
          std::copy_n(read.begin() + from * size, size, out.begin() + ((t * layers + l) * k + j) * size);
        }
  };
  const std::int64_t of_token = layers * k * size;
  return std::make_unique<ArrayReader>(
      file.name(), info, [=](std::int64_t first_byte, std::span<std::byte> out) {
        const std::int64_t begin = first_byte / of_token;
        const std::int64_t end = (first_byte + std::ssize(out) + of_token - 1) / of_token;
        std::vector<std::byte> bytes;
        whole_tokens(begin, end - begin, bytes);
        std::copy_n(bytes.begin() + (first_byte - begin * of_token), std::ssize(out), out.begin());
      });
}

}  // namespace evenkeel::internal
