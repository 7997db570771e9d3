// Arenas without a budget, in processes with limited address space or data size.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "evenkeel/base/error.h"
#include "evenkeel/base/machine_memory.h"
#include "evenkeel/device/arena.h"
#include "evenkeel/device/cpu/internal/address_slots.h"

namespace evenkeel {
namespace {

constexpr std::int64_t kMebi = std::int64_t{1} << 20;

// Returns what `body` returns in a child process under the limit; false if it throws.
bool true_under(int resource, std::int64_t bytes, const std::function<bool()>& body) {
  const pid_t process = fork();
  if (process == 0) {
    rlimit limit{};
    getrlimit(resource, &limit);
    limit.rlim_cur = static_cast<rlim_t>(bytes);
    bool held = setrlimit(resource, &limit) == 0;
    try {
      held = held && body();
    } catch (const std::exception&) {
      held = false;
    }
    _exit(held ? 0 : 1);
  }
  int status = 0;
  return waitpid(process, &status, 0) == process && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool holds_bytes(const Buffer& buffer) {
  std::ranges::fill(buffer.bytes(), std::byte{7});
  return std::ranges::count(buffer.bytes(), std::byte{7}) == std::ssize(buffer.bytes());
}

// Lends buffers at both ends of several arenas, then requests one that is too large. The buffers lent before
// must be intact.
bool arenas_lend() {
  std::vector<std::unique_ptr<Arena>> arenas;
  for (int i = 0; i < 4; ++i) arenas.push_back(std::make_unique<Arena>(Device::cpu()));
  std::vector<Buffer> lent;
  for (const std::unique_ptr<Arena>& arena : arenas)
    for (Lifetime lifetime : {Lifetime::held, Lifetime::step})
      lent.push_back(arena->allocate(9 * kMebi + 5, "rows", lifetime));
  bool refused = false;
  try {
    lent.push_back(arenas.front()->allocate(380 * kMebi, "too much", Lifetime::step));
  } catch (const Unsupported&) {
    refused = true;
  }
  return refused && std::ranges::all_of(lent, holds_bytes) &&
         holds_bytes(arenas.back()->allocate(9 * kMebi, "rows"));
}

TEST(ArenasOfALimitedProcess, TakeAddressesAndBytesAsTheyAreLent) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers reserve terabytes of address space";
#endif
  EXPECT_TRUE(true_under(RLIMIT_AS, 400 * kMebi, arenas_lend));
  EXPECT_TRUE(true_under(RLIMIT_DATA, 400 * kMebi, arenas_lend));
}

TEST(AddressSlots, AreApartAndLentAgain) {
  using internal::AddressSlot;
  const std::size_t bytes = std::size_t{1} << 40;
  const AddressSlot first(bytes);
  const std::byte* gone = nullptr;
  {
    const AddressSlot second(bytes);
    const AddressSlot third(bytes);
    gone = second.begin();
    EXPECT_GE(second.begin(), first.begin() + bytes);
    EXPECT_GE(third.begin(), second.begin() + bytes);
  }
  EXPECT_EQ(AddressSlot(bytes).begin(), gone);
  EXPECT_THROW(AddressSlot(bytes << 6), Unsupported);
}

}  // namespace
}  // namespace evenkeel
