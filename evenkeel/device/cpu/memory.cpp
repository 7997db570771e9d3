// The machine's memory: addresses are reserved, and the operating system finds bytes for them as they are
// touched.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "evenkeel/base/bytes.h"
#include "evenkeel/base/error.h"
#include "evenkeel/device/device.h"

namespace evenkeel {

namespace {

class CpuRange final : public MemoryRange {
 public:
  explicit CpuRange(std::int64_t bytes) : bytes_(static_cast<std::size_t>(bytes)) {
    void* range =
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED)
      throw Unsupported(fmt::format("cannot reserve {} of addresses for an arena", format_bytes(bytes)));
    madvise(range, bytes_, MADV_HUGEPAGE);
    begin_ = static_cast<std::byte*>(range);
  }
  CpuRange(const CpuRange&) = delete;
  CpuRange& operator=(const CpuRange&) = delete;
  ~CpuRange() override { munmap(begin_, bytes_); }

  std::byte* begin() const override { return begin_; }
  void commit(std::int64_t, std::int64_t) override {}

 private:
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
    return std::make_unique<CpuRange>(std::max(bytes, std::int64_t{4096}));
  }
};

}  // namespace

Device Device::cpu() {
  static const CpuMemory memory;
  return Device(memory, -1);
}

}  // namespace evenkeel
