// Stops reading that the caller no longer waits for. A thread sets its stop token once. The loops that read
// large inputs check it, so that the functions in between need not pass it on.
#pragma once

#include <stop_token>

namespace evenkeel {

// Thrown by work that was asked to stop. Not an Error: nothing is wrong.
struct Stopped {};

// During its lifetime, the token can stop this thread's work.
class StopScope {
 public:
  explicit StopScope(std::stop_token token);
  ~StopScope();
  StopScope(const StopScope&) = delete;
  StopScope& operator=(const StopScope&) = delete;

 private:
  std::stop_token token_;
  const std::stop_token* before_;
};

// Throws Stopped if this thread has been asked to stop. Costs a few instructions.
void stop_if_asked();

}  // namespace evenkeel
