#include "evenkeel/comm/hosts.h"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "evenkeel/comm/gather.h"

namespace evenkeel {

std::vector<int> host_of_rank(Communicator& comm) {
  using Name = std::array<char, 256>;  // longer than any host's name
  Name mine{};
  gethostname(mine.data(), mine.size() - 1);
  std::vector<Name> hosts;
  std::vector<int> host_of;
  for (const Name& name : gather(comm, mine, "hosts")) {
    const auto found = std::ranges::find(hosts, name);
    host_of.push_back(static_cast<int>(found - hosts.begin()));
    if (found == hosts.end()) hosts.push_back(name);
  }
  return host_of;
}

}  // namespace evenkeel
