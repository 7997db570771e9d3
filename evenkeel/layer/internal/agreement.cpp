#include "evenkeel/layer/internal/agreement.h"

#include <fmt/format.h>

#include "evenkeel/base/error.h"
#include "evenkeel/device/cpu/stream.h"

namespace evenkeel::internal {

std::vector<int> first_to_differ(Communicator& comm, std::span<const Digest> digests) {
  std::vector<std::uint64_t> mine;
  for (const Digest& digest : digests) mine.push_back(digest.value);
  std::vector<std::uint64_t> all(mine.size() * static_cast<std::size_t>(comm.size()));
  CpuStream stream;
  comm.all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)), stream, "agreement")
      .wait();

  std::vector<int> differing(mine.size(), -1);
  for (std::size_t i = all.size(); i-- > 0;)
    if (all[i] != all[i % mine.size()]) differing[i % mine.size()] = static_cast<int>(i / mine.size());
  return differing;
}

void require_agreement(Communicator& comm, std::span<const Digest> digests) {
  const std::vector<int> differing = first_to_differ(comm, digests);
  for (std::size_t i = 0; i < differing.size(); ++i)
    if (differing[i] >= 0)
      throw InvalidArgument(digests[i].what, fmt::format("rank {} has another than rank 0", differing[i]),
                            "the same on every rank");
}

}  // namespace evenkeel::internal
