// Long work that Ctrl-C can stop: it runs on a new thread, without the GIL, while the calling thread polls
// for signals.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <future>
#include <optional>
#include <stop_token>
#include <system_error>
#include <utility>

#include "evenkeel/base/stop.h"
#include "evenkeel/base/system_limits.h"

namespace evenkeel::python {

// work(std::stop_token) should end soon after a stop request. Then the signal handler's exception
// (KeyboardInterrupt) is thrown.
template <class Work>
auto interruptible(Work work) {
  std::stop_source stop;
  auto result = [&] {
    try {
      return std::async(std::launch::async, std::move(work), stop.get_token());
    } catch (const std::system_error& error) {
      throw too_few_threads(1, 0, "beside the one that watches for signals", error);
    }
  }();
  std::optional<nanobind::python_error> interrupted;
  {
    const nanobind::gil_scoped_release released;
    while (result.wait_for(std::chrono::milliseconds(50)) != std::future_status::ready) {
      if (interrupted) continue;
      const nanobind::gil_scoped_acquire acquired;
      if (PyErr_CheckSignals() == 0) continue;
      interrupted.emplace();  // takes the pending exception
      stop.request_stop();
    }
  }
  if (interrupted) throw nanobind::python_error(*interrupted);
  return result.get();
}

// The same for readers, which check for a stop request themselves (base/stop.h).
template <class Read>
auto interruptible_read(Read read) {
  return interruptible([read = std::move(read)](std::stop_token stop) {
    const StopScope scope(std::move(stop));
    return read();
  });
}

}  // namespace evenkeel::python
