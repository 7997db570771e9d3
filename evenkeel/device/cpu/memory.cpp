// The machine's memory: addresses are reserved, and the operating system finds bytes for them as they are
// touched.
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "evenkeel/base/bytes.h"
#include "evenkeel/base/error.h"
#include "evenkeel/base/machine_memory.h"
#include "evenkeel/device/cpu/internal/address_slots.h"
#include "evenkeel/device/device.h"
#include "evenkeel/device/pages.h"

namespace evenkeel {

namespace {

// A rank's rows and weights are too many for the pages of 4 KiB that a CPU keeps in mind.
constexpr std::size_t kLargePage = std::size_t{2} << 20;

std::size_t whole_pages(std::size_t bytes) {
  return round_up(bytes, kLargePage);
}

[[noreturn]] void refuse(std::int64_t bytes, const FreeMemory& free) {
  throw Unsupported(fmt::format("cannot have {} of memory: {} {}", format_bytes(bytes), free.because,
                                format_bytes(free.bytes)));
}

// Even beyond what a container may take, the system gives bytes, and ends a process that uses them. Bytes
// that other ranks were given and have not touched yet are not seen here.
void require_free(std::int64_t bytes) {
  if (bytes == 0) return;
  const FreeMemory free = free_memory();
  if (bytes > free.bytes) refuse(bytes, free);
}

// One mapping, in whole pages of the larger size where there are any; null where the system refuses.
class Mapping {
 public:
  Mapping(std::size_t bytes, int protection) : bytes_(bytes < kLargePage ? bytes : whole_pages(bytes)) {
    const std::size_t slack = bytes < kLargePage ? 0 : kLargePage;
    void* range =
        mmap(nullptr, bytes_ + slack, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) return;
    begin_ = static_cast<std::byte*>(range);
    if (slack > 0) align(slack);
    madvise(begin_, bytes_, MADV_HUGEPAGE);
  }
  Mapping(Mapping&& other) noexcept : begin_(std::exchange(other.begin_, nullptr)), bytes_(other.bytes_) {}
  Mapping& operator=(Mapping&&) = delete;
  ~Mapping() {
    if (begin_ != nullptr) munmap(begin_, bytes_);
  }

  std::byte* begin() const { return begin_; }

 private:
  // Gives back what lies before the first large page and behind the last.
  void align(std::size_t slack) {
    const std::size_t before =
        whole_pages(reinterpret_cast<std::uintptr_t>(begin_)) - reinterpret_cast<std::uintptr_t>(begin_);
    if (before > 0) munmap(begin_, before);
    begin_ += before;
    if (slack > before) munmap(begin_ + bytes_, slack - before);
  }

  std::byte* begin_ = nullptr;
  std::size_t bytes_;
};

// All of it usable at once.
class WholeRange final : public MemoryRange {
 public:
  explicit WholeRange(std::size_t bytes) : mapping_(bytes, PROT_READ | PROT_WRITE) {
    if (mapping_.begin() == nullptr) refuse(static_cast<std::int64_t>(bytes), free_memory());
  }
  std::byte* begin() const override { return mapping_.begin(); }
  void commit(std::int64_t, std::int64_t) override {}

 private:
  Mapping mapping_;
};

// Pages of a range of addresses, of which each has bytes from the time when it is first lent.
class PagedRange : public MemoryRange {
 public:
  void commit(std::int64_t offset, std::int64_t bytes) override {
    require_free(pages_.missing_bytes(offset, bytes));
    pages_.commit(
        offset, bytes, [&](std::int64_t page) { add(at(page)); }, [&](std::int64_t page) { drop(at(page)); });
  }

 protected:
  explicit PagedRange(std::size_t bytes) : pages_(static_cast<std::int64_t>(bytes), kLargePage) {}
  std::byte* at(std::int64_t page) const { return begin() + page * pages_.page_bytes(); }
  virtual void add(std::byte* page) = 0;
  virtual void drop(std::byte* page) = 0;

  Pages pages_;
};

// Addresses that count as data (`ulimit -d`, strict overcommit) when they are first lent.
class ReservedRange final : public PagedRange {
 public:
  ReservedRange(std::size_t bytes, Mapping mapping) : PagedRange(bytes), mapping_(std::move(mapping)) {}
  std::byte* begin() const override { return mapping_.begin(); }

 private:
  void add(std::byte* page) override {
    if (mprotect(page, kLargePage, PROT_READ | PROT_WRITE) != 0) refuse(kLargePage, free_memory());
  }
  void drop(std::byte* page) override { mprotect(page, kLargePage, PROT_NONE); }

  Mapping mapping_;
};

// For processes whose addresses are limited (`ulimit -v`): none is taken until it is lent, at a place where
// nothing else is put.
class UnreservedRange final : public PagedRange {
 public:
  explicit UnreservedRange(std::size_t bytes) : PagedRange(bytes), slot_(whole_pages(bytes)) {}
  UnreservedRange(const UnreservedRange&) = delete;
  UnreservedRange& operator=(const UnreservedRange&) = delete;
  ~UnreservedRange() override {
    for (std::int64_t page = 0; page < pages_.count(); ++page)
      if (pages_.is_there(page)) munmap(at(page), kLargePage);
  }
  std::byte* begin() const override { return slot_.begin(); }

 private:
  void add(std::byte* page) override {
    void* there = mmap(page, kLargePage, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (there == MAP_FAILED) refuse(kLargePage, free_memory());
    if (there != page) {  // a kernel older than the flag, and something else is there
      munmap(there, kLargePage);
      throw Unsupported("an arena cannot grow: something else has the addresses behind it");
    }
    madvise(page, kLargePage, MADV_HUGEPAGE);
  }
  void drop(std::byte* page) override { munmap(page, kLargePage); }

  internal::AddressSlot slot_;
};

std::unique_ptr<MemoryRange> reserve_for_later(std::size_t bytes) {
  const bool limited = free_address_bytes() != std::numeric_limits<std::int64_t>::max();
  if (!limited) {
    Mapping mapping(whole_pages(bytes), PROT_NONE);
    if (mapping.begin() != nullptr) return std::make_unique<ReservedRange>(bytes, std::move(mapping));
  }
  return std::make_unique<UnreservedRange>(bytes);
}

class CpuMemory final : public MemorySource {
 public:
  std::int64_t available_bytes() const override { return usable_memory_bytes(); }
  std::unique_ptr<MemoryRange> reserve(std::int64_t bytes, Commit commit) const override {
    // At least one page, so that an empty budget is an ordinary one.
    const auto some = static_cast<std::size_t>(std::max(bytes, std::int64_t{4096}));
    if (commit == Commit::later) return reserve_for_later(some);
    return std::make_unique<WholeRange>(some);
  }
};

}  // namespace

Device Device::cpu() {
  static const CpuMemory memory;
  return Device(memory, -1);
}

}  // namespace evenkeel
