#include "evenkeel/io/temporary_entry.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <mutex>
#include <system_error>
#include <utility>

namespace evenkeel {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnd = ".part";

// Files are made, renamed and removed under the mutex, so that discard_unfinished() misses none.
struct Registry {
  std::mutex mutex;
  std::map<fs::path, fs::path> final_path_of;  // final path, by temporary path
  unsigned counter = 0;
};

Registry& registry() {
  static auto* const all = new Registry;  // never destroyed: other threads may use it while the program ends
  return *all;
}

std::size_t longest_name(const fs::path& folder) {
  const long most = ::pathconf(folder.empty() ? "." : folder.c_str(), _PC_NAME_MAX);
  return most > 0 ? static_cast<std::size_t>(most) : 255;
}

// The final name, shortened to leave space for any process id and number.
std::string begin_of(const fs::path& final_path) {
  constexpr std::size_t space = sizeof(".4194304-4294967295.part") - 1;
  std::string name = final_path.filename().string();
  const std::size_t most = longest_name(final_path.parent_path());
  if (name.size() + space <= most) return name;
  std::size_t kept = most - std::min(most, space);
  // Do not cut a UTF-8 character.
  while (kept > 0 && (static_cast<unsigned char>(name[kept]) & 0xc0u) == 0x80u) --kept;
  name.resize(kept);
  return name;
}

// Retries, since another thread may be making a file in the folder at the same time.
void remove_whole(const fs::path& path) noexcept {
  std::error_code error;
  for (int tries = 0; tries < 100; ++tries) {
    try {
      if (fs::remove_all(path, error); !error) return;
    } catch (const std::exception&) {  // out of memory: other threads may free some
    }
  }
}

bool is_inside(const fs::path& path, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first == folder.end();
}

}  // namespace

void flush_folder(const fs::path& folder) {
  const int opened = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (opened < 0) return;
  ::fsync(opened);
  ::close(opened);
}

TemporaryEntry::TemporaryEntry(fs::path path, const std::function<int(const char*)>& make)
    : final_path_(std::move(path)) {
  const std::string begin = begin_of(final_path_);
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  for (;;) {
    // The path is kept as the user wrote it, since errors name it.
    temporary_path_ = final_path_;
    temporary_path_.replace_filename(fmt::format("{}.{}-{}{}", begin, ::getpid(), all.counter++, kEnd));
    const int error = make(temporary_path_.c_str());
    if (error == EEXIST) continue;
    if (error != 0) throw std::system_error(error, std::generic_category());
    all.final_path_of.emplace(temporary_path_, final_path_);
    return;
  }
}

TemporaryEntry::~TemporaryEntry() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  if (!renamed_) remove_whole(temporary_path_);
  all.final_path_of.erase(temporary_path_);
}

int TemporaryEntry::rename() {
  Registry& all = registry();
  {
    const std::lock_guard lock(all.mutex);
    if (::rename(temporary_path_.c_str(), final_path_.c_str()) != 0) return errno;
    renamed_ = true;
    all.final_path_of.erase(temporary_path_);
  }
  flush_folder(final_path_.parent_path());
  return 0;
}

bool TemporaryEntry::is_temporary_name(const fs::path& path, const std::string& name) {
  return name.starts_with(begin_of(path) + ".") && name.ends_with(kEnd);
}

std::vector<std::string> discard_unfinished() {
  Registry& all = registry();
  all.mutex.lock();  // and never unlocked
  std::vector<std::string> final_paths;
  for (const auto& [temporary, final_path] : all.final_path_of) {
    remove_whole(temporary);
    const auto holds_it = [&](const auto& other) {
      return other.first != temporary && is_inside(temporary, other.first);
    };
    if (std::ranges::none_of(all.final_path_of, holds_it)) final_paths.push_back(final_path.string());
  }
  return final_paths;
}

}  // namespace evenkeel
