// Tracks which pages of an address range are backed by memory. An arena without a budget gets its memory from
// the device page by page.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "evenkeel/base/bytes.h"

namespace evenkeel {

class Pages {
 public:
  Pages() = default;
  // The number of pages is rounded up to cover `bytes`.
  Pages(std::int64_t bytes, std::int64_t page_bytes)
      : page_bytes_(page_bytes),
        committed_(
            static_cast<std::size_t>(std::max((bytes + page_bytes - 1) / page_bytes, std::int64_t{1}))) {}

  // The default page size: a multiple of the device's granularity, and at least 32 MiB, so that a large arena
  // has few pages.
  static std::int64_t usual_bytes(std::int64_t granularity) {
    constexpr std::int64_t kLeast = std::int64_t{32} << 20;
    return round_up(kLeast, granularity);
  }

  std::int64_t count() const { return static_cast<std::int64_t>(committed_.size()); }
  std::int64_t page_bytes() const { return page_bytes_; }
  std::int64_t bytes() const { return count() * page_bytes_; }
  bool is_committed(std::int64_t page) const { return committed_[static_cast<std::size_t>(page)]; }

  // Total size of the pages in [offset, offset + bytes) that have no memory yet.
  std::int64_t missing_bytes(std::int64_t offset, std::int64_t bytes) const {
    if (bytes == 0) return 0;
    std::int64_t missing = 0;
    for (std::int64_t page = offset / page_bytes_; page <= (offset + bytes - 1) / page_bytes_; ++page)
      missing += is_committed(page) ? 0 : page_bytes_;
    return missing;
  }

  // Calls add(page) for each page in [offset, offset + bytes) that has no memory yet. If add() throws, the
  // pages added by this call are dropped again.
  template <class Add, class Drop>
  void commit(std::int64_t offset, std::int64_t bytes, Add add, Drop drop) {
    if (bytes == 0) return;
    const std::int64_t first = offset / page_bytes_;
    const std::int64_t last = (offset + bytes - 1) / page_bytes_;
    added_.clear();
    added_.reserve(static_cast<std::size_t>(last - first + 1));
    try {
      for (std::int64_t page = first; page <= last; ++page) {
        if (is_committed(page)) continue;
        add(page);
        added_.push_back(page);
      }
    } catch (...) {
      for (std::int64_t page : added_) drop(page);
      throw;
    }
    for (std::int64_t page : added_) committed_[static_cast<std::size_t>(page)] = true;
  }

 private:
  std::int64_t page_bytes_ = 1;
  std::vector<bool> committed_;
  std::vector<std::int64_t> added_;
};

}  // namespace evenkeel
