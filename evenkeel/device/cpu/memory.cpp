// The machine's memory: addresses are reserved, and the operating system backs them with memory when they are
// first touched.
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

// A rank's rows and weights need more 4 KiB pages than the TLB holds.
constexpr std::size_t kLargePage = std::size_t{2} << 20;

std::size_t whole_pages(std::size_t bytes) {
  return round_up(bytes, kLargePage);
}

[[noreturn]] void refuse(std::int64_t bytes, const FreeMemory& free) {
  throw Unsupported(fmt::format("cannot allocate {} of memory: {} {}", format_bytes(bytes), free.because,
                                format_bytes(free.bytes)));
}

// Checked here because the system lends memory beyond a container's limit and kills the process that uses it.
// Does not see memory that other ranks have allocated but not touched yet.
void require_free(std::int64_t bytes) {
  if (bytes == 0) return;
  const FreeMemory free = free_memory();
  if (bytes > free.bytes) refuse(bytes, free);
}

// Owns one mapping, made of whole large pages if `bytes` fills at least one. begin() is null if mmap fails.
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
  // Unmaps the parts before the first large page and after the last.
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

// A range that is usable from the start.
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

// A range whose pages get memory when they are first lent.
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

// Reserves its addresses at once. Pages count as data (`ulimit -d`, strict overcommit) when first lent.
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

// For processes with limited address space (`ulimit -v`): maps each page only when it is lent. The pages lie
// in an AddressSlot, where nothing else is mapped.
class UnreservedRange final : public PagedRange {
 public:
  explicit UnreservedRange(std::size_t bytes) : PagedRange(bytes), slot_(whole_pages(bytes)) {}
  UnreservedRange(const UnreservedRange&) = delete;
  UnreservedRange& operator=(const UnreservedRange&) = delete;
  ~UnreservedRange() override {
    for (std::int64_t page = 0; page < pages_.count(); ++page)
      if (pages_.is_committed(page)) munmap(at(page), kLargePage);
  }
  std::byte* begin() const override { return slot_.begin(); }

 private:
  void add(std::byte* page) override {
    void* there = mmap(page, kLargePage, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (there == MAP_FAILED) refuse(kLargePage, free_memory());
    if (there != page) {  // an old kernel without MAP_FIXED_NOREPLACE, and the address is taken
      munmap(there, kLargePage);
      throw Unsupported(
          "an arena cannot grow: the addresses after it are in use, and only Linux 4.17 or later reserves "
          "them");
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
    // At least one page, so that a budget of 0 needs no special case.
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
