#include "cli/interrupt.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <system_error>
#include <thread>

#include "cli/output.h"
#include "cli/progress.h"
#include "evenkeel/io/temporary_entry.h"

namespace evenkeel::cli {

namespace {

constexpr int kEndSignals[] = {SIGHUP, SIGINT, SIGTERM, SIGXCPU};

std::mutex interrupt_mutex;
Interrupt* current_interrupt = nullptr;

bool stops_work(int signal) {
  const std::lock_guard lock(interrupt_mutex);
  return current_interrupt != nullptr && current_interrupt->request_stop(signal);
}

// The path relative to the working folder if it lies inside, otherwise unchanged.
std::string relative_to_working_folder(const std::string& place) {
  std::error_code error;
  const std::filesystem::path here = std::filesystem::current_path(error);
  const std::filesystem::path near = std::filesystem::path(place).lexically_proximate(here);
  return error || near.empty() || *near.begin() == ".." ? place : near.string();
}

[[noreturn]] void end_by(int signal) {
  try {
    const std::vector<std::string> places = discard_unfinished();
    wipe_line();
    for (const std::string& place : places)
      say("evenkeel: interrupted; {} was not made", relative_to_working_folder(place));
  } catch (const std::exception&) {  // not even memory for the names: just end
  }
  std::signal(signal, SIG_DFL);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, signal);
  pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
  std::raise(signal);
  std::abort();
}

[[noreturn]] void wait_for(const sigset_t& signals) {
  for (;;) {
    int signal = 0;
    if (sigwait(&signals, &signal) == 0 && !stops_work(signal)) end_by(signal);
  }
}

bool is_ignored(int signal) {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

void watch_signals() {
  std::signal(SIGXFSZ, SIG_IGN);  // a write above the file size limit then fails with a message
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  sigset_t ours;
  sigemptyset(&ours);
  for (const int signal : kEndSignals)
    if (!is_ignored(signal) && sigismember(&blocked, signal) == 0) sigaddset(&ours, signal);
  pthread_sigmask(SIG_BLOCK, &ours, nullptr);
  try {
    std::thread([ours] { wait_for(ours); }).detach();
  } catch (const std::exception&) {  // no thread could be started: signals keep their default action
    pthread_sigmask(SIG_UNBLOCK, &ours, nullptr);
  }
}

Interrupt::Interrupt(std::initializer_list<int> signals) : signals_(signals) {
  const std::lock_guard lock(interrupt_mutex);
  current_interrupt = this;
}

Interrupt::~Interrupt() {
  const std::lock_guard lock(interrupt_mutex);
  current_interrupt = nullptr;
}

bool Interrupt::request_stop(int signal) {
  return std::ranges::find(signals_, signal) != signals_.end() && source_.request_stop();
}

}  // namespace evenkeel::cli
