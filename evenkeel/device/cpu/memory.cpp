// The machine's memory: addresses are reserved, and the operating system finds bytes for them as they are
// touched.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "evenkeel/base/bytes.h"
#include "evenkeel/base/error.h"
#include "evenkeel/device/device.h"

namespace evenkeel {

namespace {

// Whole pages of the larger size, where there are any: a rank's rows and weights are too many for the pages
// of 4 KiB that a CPU keeps in mind.
class CpuRange final : public MemoryRange {
 public:
  explicit CpuRange(std::size_t bytes) : bytes_(bytes < kLargePage ? bytes : whole_pages(bytes)) {
    const std::size_t slack = bytes < kLargePage ? 0 : kLargePage;
    void* range = mmap(nullptr, bytes_ + slack, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED)
      throw Unsupported(
          fmt::format("cannot reserve {} of addresses", format_bytes(static_cast<std::int64_t>(bytes))));
    begin_ = static_cast<std::byte*>(range);
    if (slack > 0) align(slack);
    madvise(begin_, bytes_, MADV_HUGEPAGE);
  }
  CpuRange(const CpuRange&) = delete;
  CpuRange& operator=(const CpuRange&) = delete;
  ~CpuRange() override { munmap(begin_, bytes_); }

  std::byte* begin() const override { return begin_; }
  void commit(std::int64_t, std::int64_t) override {}

 private:
  static constexpr std::size_t kLargePage = std::size_t{2} << 20;
  static std::size_t whole_pages(std::size_t bytes) {
    return (bytes + kLargePage - 1) / kLargePage * kLargePage;
  }

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

class CpuMemory final : public MemorySource {
 public:
  std::int64_t available_bytes() const override {
    return std::int64_t{sysconf(_SC_PHYS_PAGES)} * std::int64_t{sysconf(_SC_PAGESIZE)};
  }
  std::unique_ptr<MemoryRange> reserve(std::int64_t bytes, Commit) const override {
    // At least one page, so that an empty budget is an ordinary one.
    return std::make_unique<CpuRange>(static_cast<std::size_t>(std::max(bytes, std::int64_t{4096})));
  }
};

}  // namespace

Device Device::cpu() {
  static const CpuMemory memory;
  return Device(memory, -1);
}

}  // namespace evenkeel
