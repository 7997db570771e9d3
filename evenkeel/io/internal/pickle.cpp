#include "evenkeel/io/internal/pickle.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "evenkeel/base/error.h"

namespace evenkeel::internal {

// The stack machine that a pickle is a program for.
class PickleMachine {
 public:
  PickleMachine(Pickle& pickle, std::span<const std::byte> bytes, std::span<const std::string_view> allowed,
                std::string file, std::string where)
      : pickle_(pickle), bytes_(bytes), allowed_(allowed), file_(std::move(file)), where_(std::move(where)) {}

  void run() {
    if (byte() != 0x80 || byte() != 2) refuse("does not begin as a pickle of protocol 2");
    while (step(byte())) {
    }
  }

 private:
  using Kind = Pickle::Kind;
  using Id = Pickle::Id;

  [[noreturn]] void refuse(const std::string& why) const {
    throw ParseError(file_, fmt::format("{} byte {}", where_, at_), why);
  }

  // Instructions, by the letters that Python gave them. False at the end.
  bool step(std::uint8_t instruction) {
    switch (instruction) {
      case '.':
        pickle_.root_ = pop();
        return false;
      case '(':
        marks_.push_back(stack_.size());
        return true;
      case 'N':
        return push(Kind::none, 0);
      case 0x88:
      case 0x89:
        return push(Kind::boolean, instruction == 0x88 ? 1 : 0);
      case 'K':
        return push(Kind::integer, little(1));
      case 'M':
        return push(Kind::integer, little(2));
      case 'J':
        return push(Kind::integer, static_cast<std::int32_t>(little(4)));
      case 0x8a:
        return push(Kind::integer, long_integer());
      case 'G':
        return push(Kind::real, static_cast<std::int64_t>(big8()));
      case 'X':
        return push_text(Kind::text, take(static_cast<std::size_t>(little(4))));
      case 'c':
        return push_name();
      case 'q':
        return put(little(1));
      case 'r':
        return put(little(4));
      case 'h':
        return get(little(1));
      case 'j':
        return get(little(4));
      default:
        return step_with_items(instruction);
    }
  }

  bool step_with_items(std::uint8_t instruction) {
    switch (instruction) {
      case ']':
        return push_items(Kind::list, {});
      case '}':
        return push_items(Kind::dict, {});
      case ')':
        return push_items(Kind::tuple, {});
      case 't':
        return push_items(Kind::tuple, pop_to_mark());
      case 0x85:
      case 0x86:
      case 0x87:
        return push_items(Kind::tuple, pop_last(instruction - 0x84U));
      case 'a':
        return extend(Kind::list, pop_last(1));
      case 'e':
        return extend(Kind::list, pop_to_mark());
      case 's':
        return extend(Kind::dict, pop_last(2));
      case 'u':
        return extend(Kind::dict, pop_to_mark());
      case 'Q':
        return push_items(Kind::persistent, pop_last(1));
      case 'R':
        return call(pop_last(2));
      default:
        --at_;
        refuse(fmt::format("instruction 0x{:02x} is none of those that plain data needs", instruction));
    }
  }

  std::string_view take(std::size_t count) {
    if (count > bytes_.size() - at_)
      refuse(fmt::format("ends {} bytes too early", count - (bytes_.size() - at_)));
    const std::string_view taken(reinterpret_cast<const char*>(bytes_.data()) + at_, count);
    at_ += count;
    return taken;
  }

  std::uint8_t byte() { return static_cast<std::uint8_t>(take(1).front()); }

  std::int64_t little(std::size_t count) {
    const std::string_view taken = take(count);
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < count; ++i)
      value |= static_cast<std::uint64_t>(static_cast<std::uint8_t>(taken[i])) << (8 * i);
    return static_cast<std::int64_t>(value);
  }

  std::uint64_t big8() {
    std::uint64_t value = 0;
    for (char c : take(8)) value = value << 8 | static_cast<std::uint8_t>(c);
    return value;
  }

  std::int64_t long_integer() {
    const std::size_t count = byte();
    if (count > 8) refuse(fmt::format("an integer of {} bytes; at most 8 are read", count));
    if (count == 0) return 0;
    const std::uint64_t value = static_cast<std::uint64_t>(little(count));
    const int unused = static_cast<int>(64 - 8 * count);
    return static_cast<std::int64_t>(value << unused) >> unused;  // the sign is that of the last byte
  }

  bool push(Kind kind, std::int64_t number) {
    stack_.push_back(static_cast<Id>(pickle_.values_.size()));
    pickle_.values_.push_back({kind, number});
    return true;
  }

  bool push_text(Kind kind, std::string_view text) {
    pickle_.texts_.emplace_back(text);
    return push(kind, std::ssize(pickle_.texts_) - 1);
  }

  bool push_items(Kind kind, std::vector<Id> items) {
    pickle_.lists_.push_back(std::move(items));
    return push(kind, std::ssize(pickle_.lists_) - 1);
  }

  std::string_view line() {
    constexpr std::size_t most = 256;
    const std::string_view rest(reinterpret_cast<const char*>(bytes_.data()) + at_,
                                std::min(bytes_.size() - at_, most));
    const std::size_t end = rest.find('\n');
    if (end == std::string_view::npos) refuse("a name does not end");
    at_ += end + 1;
    return rest.substr(0, end);
  }

  bool push_name() {
    const std::string_view module = line();
    const std::string name = fmt::format("{} {}", module, line());
    if (std::find(allowed_.begin(), allowed_.end(), name) == allowed_.end())
      refuse(fmt::format("refers to Python's '{}', which plain tensors do not need; nothing was run", name));
    return push_text(Kind::name, name);
  }

  Id pop() { return pop_last(1).front(); }

  std::vector<Id> pop_last(std::size_t count) {
    const std::size_t bottom = marks_.empty() ? 0 : marks_.back();
    if (stack_.size() < bottom + count) refuse("takes more from its stack than is there");
    std::vector<Id> popped(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return popped;
  }

  std::vector<Id> pop_to_mark() {
    if (marks_.empty()) refuse("takes more from its stack than is there");
    std::vector<Id> popped = pop_last(stack_.size() - marks_.back());
    marks_.pop_back();
    return popped;
  }

  // Appends to what is on top of the stack.
  bool extend(Kind kind, const std::vector<Id>& more) {
    const Id top = pop_last(1).front();
    stack_.push_back(top);
    if (pickle_.kind(top) != kind) refuse(fmt::format("adds to {}", pickle_.kind_name(top)));
    if (kind == Kind::dict && more.size() % 2 != 0) refuse("a key without a value");
    auto& items = pickle_.lists_[static_cast<std::size_t>(pickle_.values_[top].number)];
    items.insert(items.end(), more.begin(), more.end());
    return true;
  }

  bool call(std::vector<Id> name_and_arguments) {
    const Id name = name_and_arguments[0];
    const Id arguments = name_and_arguments[1];
    if (pickle_.kind(name) != Kind::name || pickle_.kind(arguments) != Kind::tuple)
      refuse(fmt::format("calls {} with {}", pickle_.kind_name(name), pickle_.kind_name(arguments)));
    if (pickle_.text(name) == "collections OrderedDict") {
      if (!pickle_.items(arguments).empty()) refuse("an OrderedDict made of something");
      return push_items(Kind::dict, {});
    }
    return push_items(Kind::call, std::move(name_and_arguments));
  }

  bool put(std::int64_t place) {
    const Id top = pop_last(1).front();
    stack_.push_back(top);
    if (place > std::ssize(memo_))
      refuse(fmt::format("remembers a value in place {} of {}", place, memo_.size()));
    if (place == std::ssize(memo_)) memo_.push_back(top);
    memo_[static_cast<std::size_t>(place)] = top;
    return true;
  }

  bool get(std::int64_t place) {
    if (place >= std::ssize(memo_)) refuse(fmt::format("recalls value {} of {}", place, memo_.size()));
    stack_.push_back(memo_[static_cast<std::size_t>(place)]);
    return true;
  }

  Pickle& pickle_;
  std::span<const std::byte> bytes_;
  std::span<const std::string_view> allowed_;
  std::string file_;
  std::string where_;
  std::size_t at_ = 0;
  std::vector<Id> stack_;
  std::vector<std::size_t> marks_;
  std::vector<Id> memo_;
};

Pickle::Pickle(std::span<const std::byte> bytes, std::span<const std::string_view> allowed, std::string file,
               std::string where) {
  if (bytes.size() > std::uint32_t{0xffffffff})
    throw ParseError(file, where,
                     fmt::format("is a pickle of {} bytes; at most 2^32-1 are read", bytes.size()));
  PickleMachine(*this, bytes, allowed, std::move(file), std::move(where)).run();
}

std::optional<Pickle::Id> Pickle::find(Id dict, std::string_view key) const {
  if (kind(dict) != Kind::dict) return std::nullopt;
  constexpr std::size_t few = 64;
  const auto pairs = items(dict);
  if (pairs.size() > few) {
    const auto [sorted, fresh] = sorted_.try_emplace(values_[dict].number);
    for (std::size_t i = 0; fresh && i < pairs.size(); i += 2)
      if (kind(pairs[i]) == Kind::text) sorted->second.insert_or_assign(text(pairs[i]), pairs[i + 1]);
    const auto found = sorted->second.find(key);
    return found == sorted->second.end() ? std::nullopt : std::optional(found->second);
  }
  for (std::size_t i = pairs.size(); i >= 2; i -= 2)
    if (kind(pairs[i - 2]) == Kind::text && text(pairs[i - 2]) == key) return pairs[i - 1];
  return std::nullopt;
}

std::string_view Pickle::kind_name(Id id) const {
  switch (kind(id)) {
    case Kind::none:
      return "None";
    case Kind::boolean:
      return "a truth value";
    case Kind::integer:
      return "an integer";
    case Kind::real:
      return "a float";
    case Kind::text:
      return "a text";
    case Kind::name:
      return "a name";
    case Kind::list:
      return "a list";
    case Kind::tuple:
      return "a tuple";
    case Kind::dict:
      return "a dict";
    case Kind::call:
      return "a tensor";
    case Kind::persistent:
      return "a storage";
  }
  return "something else";
}

}  // namespace evenkeel::internal
