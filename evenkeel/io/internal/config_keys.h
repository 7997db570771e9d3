// The keys of one object of a config.json, each refused by its whole name. Python writes null for what it
// leaves out, so that is missing too.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "evenkeel/io/internal/json.h"

namespace evenkeel::internal {

class ConfigKeys {
 public:
  // Keeps a reference to `object`; `prefix` is what its keys are called with in messages ("text_config.").
  ConfigKeys(const Json& object, std::string file, std::string prefix)
      : object_(&object), file_(std::move(file)), prefix_(std::move(prefix)) {}

  const Json& object() const { return *object_; }
  const std::string& file() const { return file_; }
  std::string name(std::string_view key) const { return prefix_ + std::string(key); }
  // Null where the key is missing or null.
  const Json* find(std::string_view key) const;
  bool is_null(std::string_view key) const;
  bool is_false(std::string_view key) const;
  // Null is not, too.
  bool is_there(std::string_view key) const { return find(key) != nullptr; }
  bool is_list(std::string_view key) const { return is_there(key) && find(key)->is_array(); }
  bool flag(std::string_view key, bool absent) const;
  std::string word(std::string_view key) const;  // empty where there is none
  std::vector<std::string> words(std::string_view key) const;
  int integer(std::string_view key, int least, int most) const;
  int integer_or(std::string_view key, int least, int most, int absent) const;
  std::vector<std::int64_t> integers(std::string_view key) const;
  // An element of a list.
  JsonField element(std::string_view key, std::size_t i) const { return {(*find(key))[i], file_, name(key)}; }

  template <class... Args>
  [[noreturn]] void fail(std::string_view key, fmt::format_string<Args...> why, Args&&... args) const {
    throw parse_error(file_, key.empty() ? "" : name(key), why, std::forward<Args>(args)...);
  }

 private:
  const Json* object_;
  std::string file_;
  std::string prefix_;
};

}  // namespace evenkeel::internal
