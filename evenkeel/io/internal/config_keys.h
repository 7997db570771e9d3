// The keys of one object of a config.json, each refused by its whole name.
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
  std::string name(std::string_view key) const;
  // Null where the key is missing or null.
  const Json* find(std::string_view key) const;
  bool is_null(std::string_view key) const;
  bool is_false(std::string_view key) const;
  // Null is not, too.
  bool is_there(std::string_view key) const { return find(key) != nullptr; }
  bool flag(std::string_view key, bool absent) const;
  std::string word(std::string_view key) const;  // empty where there is none
  std::vector<std::string> words(std::string_view key) const;
  int integer(std::string_view key, int least, int most) const;
  int integer_or(std::string_view key, int least, int most, int absent) const;
  std::vector<std::int64_t> integers(std::string_view key) const;
  [[noreturn]] void fail(std::string_view key, std::string why) const;

 private:
  const Json* object_;
  std::string file_;
  std::string prefix_;
};

}  // namespace evenkeel::internal
