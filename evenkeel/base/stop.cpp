#include "evenkeel/base/stop.h"

#include <utility>

namespace evenkeel {

namespace {

thread_local const std::stop_token* token_of_thread = nullptr;

}  // namespace

StopScope::StopScope(std::stop_token token)
    : token_(std::move(token)), before_(std::exchange(token_of_thread, &token_)) {}

StopScope::~StopScope() {
  token_of_thread = before_;
}

void stop_if_asked() {
  if (token_of_thread != nullptr && token_of_thread->stop_requested()) throw Stopped{};
}

}  // namespace evenkeel
