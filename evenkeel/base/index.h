// Strong index types, and containers that accept only the right one: loads[ExpertId], never loads[int].
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace evenkeel {

// An index into one kind of thing. Not convertible to or from integers by accident.
template <class Tag>
class Index {
 public:
  constexpr Index() = default;
  template <class Integer>
  explicit constexpr Index(Integer value) : value_(static_cast<std::int32_t>(value)) {}

  constexpr std::int32_t value() const { return value_; }
  constexpr std::size_t offset() const { return static_cast<std::size_t>(value_); }

  constexpr Index& operator++() {
    ++value_;
    return *this;
  }
  friend constexpr auto operator<=>(Index, Index) = default;

 private:
  std::int32_t value_ = 0;
};

using ExpertId = Index<struct ExpertTag>;
using RankId = Index<struct RankTag>;
using LayerId = Index<struct LayerTag>;

// All indices of 0..count-1: for (ExpertId e : indices<ExpertId>(num_experts)).
template <class I>
class IndexRange {
 public:
  explicit constexpr IndexRange(std::int32_t count) : count_(count) {}
  class Iterator {
   public:
    explicit constexpr Iterator(I at) : at_(at) {}
    constexpr I operator*() const { return at_; }
    constexpr Iterator& operator++() {
      ++at_;
      return *this;
    }
    friend constexpr bool operator==(Iterator, Iterator) = default;

   private:
    I at_;
  };
  constexpr Iterator begin() const { return Iterator(I(0)); }
  constexpr Iterator end() const { return Iterator(I(count_)); }

 private:
  std::int32_t count_;
};

template <class I, class Integer>
constexpr IndexRange<I> indices(Integer count) {
  return IndexRange<I>(static_cast<std::int32_t>(count));
}

// The items of one group, where `items` holds one group after another: group g is begins[g]..begins[g + 1].
template <class T, class Offset>
std::span<const T> group_of(const std::vector<T>& items, const std::vector<Offset>& begins,
                            std::size_t group) {
  return std::span(items).subspan(begins[group], begins[group + 1] - begins[group]);
}

// A vector indexed by one kind of index.
template <class I, class T>
class IndexedVector {
 public:
  IndexedVector() = default;
  explicit IndexedVector(std::size_t count, const T& value = T{}) : items_(count, value) {}
  explicit IndexedVector(std::vector<T> items) : items_(std::move(items)) {}

  T& operator[](I i) { return items_[i.offset()]; }
  const T& operator[](I i) const { return items_[i.offset()]; }
  std::size_t size() const { return items_.size(); }
  void assign(std::size_t count, const T& value) { items_.assign(count, value); }
  void resize(std::size_t count) { items_.resize(count); }
  auto begin() { return items_.begin(); }
  auto end() { return items_.end(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  std::span<T> span() { return items_; }
  std::span<const T> span() const { return items_; }
  friend bool operator==(const IndexedVector&, const IndexedVector&) = default;

 private:
  std::vector<T> items_;
};

}  // namespace evenkeel
