// Gathers values of every rank into the host memory of every rank.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>
#include <vector>

#include "evenkeel/comm/communicator.h"
#include "evenkeel/device/cpu/stream.h"

namespace evenkeel {

// Collective; blocks. Every rank gives the same number of values; the result is in rank order. `name` is as
// in all_gather().
template <class Value>
std::vector<Value> gather(Communicator& comm, std::span<const Value> mine, const char* name) {
  static_assert(std::is_trivially_copyable_v<Value>);
  std::vector<Value> all(mine.size() * static_cast<std::size_t>(comm.size()));
  CpuStream stream;
  comm.all_gather(std::as_bytes(mine), std::as_writable_bytes(std::span(all)), stream, name).wait();
  return all;
}
template <class Value>
std::vector<Value> gather(Communicator& comm, const Value& mine, const char* name) {
  return gather(comm, std::span(&mine, 1), name);
}

}  // namespace evenkeel
