// Arrays passed between Python and the library: int64 or double, row-major, in host memory.
#pragma once

#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace evenkeel::python {

template <class T, int dimensions>
using InArray =
    nanobind::ndarray<const T, nanobind::ndim<dimensions>, nanobind::c_contig, nanobind::device::cpu>;

template <class T>
using OutArray = nanobind::ndarray<nanobind::numpy, T>;

template <class T, class... Constraints>
std::span<const T> values_of(const nanobind::ndarray<const T, Constraints...>& array) {
  return {array.data(), array.size()};
}

// Makes an array that owns its numbers.
template <class T>
OutArray<T> to_array(std::vector<T> values, std::initializer_list<std::size_t> shape) {
  auto owned = std::make_unique<std::vector<T>>(std::move(values));
  T* const data = owned->data();
  const nanobind::capsule owner(owned.get(),
                                [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  (void)owned.release();
  return OutArray<T>(data, shape.size(), shape.begin(), owner);
}

template <class T>
OutArray<T> to_array(std::span<const T> values, std::initializer_list<std::size_t> shape) {
  return to_array(std::vector<T>(values.begin(), values.end()), shape);
}

}  // namespace evenkeel::python
