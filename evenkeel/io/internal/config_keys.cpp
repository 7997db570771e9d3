#include "evenkeel/io/internal/config_keys.h"

#include "evenkeel/io/internal/json.h"

namespace evenkeel::internal {

const Json* ConfigKeys::find(std::string_view key) const {
  const auto found = object_->find(key);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

bool ConfigKeys::is_null(std::string_view key) const {
  const auto found = object_->find(key);
  return found != object_->end() && found->is_null();
}

bool ConfigKeys::is_false(std::string_view key) const {
  const Json* value = find(key);
  return value != nullptr && value->is_boolean() && !value->get<bool>();
}

std::string ConfigKeys::word(std::string_view key) const {
  const Json* value = find(key);
  return value != nullptr && value->is_string() ? value->get<std::string>() : "";
}

bool ConfigKeys::flag(std::string_view key, bool absent) const {
  const Json* value = find(key);
  if (value == nullptr) return absent;
  if (!value->is_boolean()) fail(key, "is a JSON {}, not true or false", value->type_name());
  return value->get<bool>();
}

std::vector<std::string> ConfigKeys::words(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) fail(key, "is missing");
  if (!value->is_array()) fail(key, "is a JSON {}, not a list", value->type_name());
  std::vector<std::string> all;
  for (const Json& word : *value) {
    if (!word.is_string()) fail(key, "has a JSON {}, not a word", word.type_name());
    all.push_back(word.get<std::string>());
  }
  return all;
}

int ConfigKeys::integer(std::string_view key, int least, int most) const {
  const Json* value = find(key);
  if (value == nullptr) fail(key, "is missing");
  return JsonField(*value, file_, name(key)).integer(least, most);
}

int ConfigKeys::integer_or(std::string_view key, int least, int most, int absent) const {
  return find(key) == nullptr ? absent : integer(key, least, most);
}

std::vector<std::int64_t> ConfigKeys::integers(std::string_view key) const {
  return JsonField(*find(key), file_, name(key)).integers();
}

}  // namespace evenkeel::internal
