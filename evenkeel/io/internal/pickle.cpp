#include "evenkeel/io/internal/pickle.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "evenkeel/io/internal/parse_error.h"

namespace evenkeel::internal {

// The stack machine that runs a pickle's instructions.
class PickleMachine {
 public:
  PickleMachine(Pickle& pickle, std::span<const std::byte> bytes, std::span<const std::string_view> allowed,
                std::string file, std::string where)
      : pickle_(pickle), bytes_(bytes), allowed_(allowed), file_(std::move(file)), where_(std::move(where)) {}

  void run() {
    if (byte() != 0x80 || byte() != 2) refuse("does not begin as a pickle of protocol 2");
    while (!finished_) step(byte());
  }

 private:
  using Kind = Pickle::Kind;
  using Id = Pickle::Id;

  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> why, Args&&... args) const {
    throw parse_error(file_, fmt::format("{} byte {}", where_, at_), why, std::forward<Args>(args)...);
  }

  void step(std::uint8_t instruction) {
    using Step = void (*)(PickleMachine&);
    // Instruction codes are those of Python.
    static constexpr std::pair<std::uint8_t, Step> known[] = {
        {'.', [](PickleMachine& m) { m.finish(); }},
        {'(', [](PickleMachine& m) { m.mark(); }},
        {'N', [](PickleMachine& m) { m.push(Kind::none, 0); }},
        {0x88, [](PickleMachine& m) { m.push(Kind::boolean, 1); }},
        {0x89, [](PickleMachine& m) { m.push(Kind::boolean, 0); }},
        {'K', [](PickleMachine& m) { m.push(Kind::integer, m.little(1)); }},
        {'M', [](PickleMachine& m) { m.push(Kind::integer, m.little(2)); }},
        {'J', [](PickleMachine& m) { m.push(Kind::integer, static_cast<std::int32_t>(m.little(4))); }},
        {0x8a, [](PickleMachine& m) { m.push(Kind::integer, m.long_integer()); }},
        {'G', [](PickleMachine& m) { m.push_real(); }},
        {'X',
         [](PickleMachine& m) { m.push_text(Kind::text, m.take(static_cast<std::size_t>(m.little(4)))); }},
        {'c', [](PickleMachine& m) { m.push_name(); }},
        {'q', [](PickleMachine& m) { m.put(m.little(1)); }},
        {'r', [](PickleMachine& m) { m.put(m.little(4)); }},
        {'h', [](PickleMachine& m) { m.get(m.little(1)); }},
        {'j', [](PickleMachine& m) { m.get(m.little(4)); }},
        {']', [](PickleMachine& m) { m.push_items(Kind::list, {}); }},
        {'}', [](PickleMachine& m) { m.push_items(Kind::dict, {}); }},
        {')', [](PickleMachine& m) { m.push_items(Kind::tuple, {}); }},
        {'t', [](PickleMachine& m) { m.push_items(Kind::tuple, m.pop_to_mark()); }},
        {0x85, [](PickleMachine& m) { m.push_items(Kind::tuple, m.pop_last(1)); }},
        {0x86, [](PickleMachine& m) { m.push_items(Kind::tuple, m.pop_last(2)); }},
        {0x87, [](PickleMachine& m) { m.push_items(Kind::tuple, m.pop_last(3)); }},
        {'a', [](PickleMachine& m) { m.extend(Kind::list, m.pop_last(1)); }},
        {'e', [](PickleMachine& m) { m.extend(Kind::list, m.pop_to_mark()); }},
        {'s', [](PickleMachine& m) { m.extend(Kind::dict, m.pop_last(2)); }},
        {'u', [](PickleMachine& m) { m.extend(Kind::dict, m.pop_to_mark()); }},
        {'Q', [](PickleMachine& m) { m.push_items(Kind::persistent, m.pop_last(1)); }},
        {'R', [](PickleMachine& m) { m.call(m.pop_last(2)); }},
    };
    static constexpr auto steps = [] {
      std::array<Step, 256> all{};
      for (const auto& [code, each] : known) all[code] = each;
      return all;
    }();
    if (steps[instruction] != nullptr) return steps[instruction](*this);
    --at_;
    refuse("instruction 0x{:02x} is not allowed: plain data does not need it", instruction);
  }

  void finish() {
    pickle_.root_ = pop_last(1).front();
    if (at_ != bytes_.size()) refuse("continues after its end");
    finished_ = true;
  }

  void mark() { marks_.push_back(stack_.size()); }

  std::string_view take(std::size_t count) {
    if (count > bytes_.size() - at_) refuse("ends {} bytes too early", count - (bytes_.size() - at_));
    const std::string_view taken(reinterpret_cast<const char*>(bytes_.data()) + at_, count);
    at_ += count;
    return taken;
  }

  std::uint8_t byte() { return static_cast<std::uint8_t>(take(1).front()); }

  std::int64_t little(std::size_t count) {
    std::int64_t value = 0;
    std::memcpy(&value, take(count).data(), count);
    return value;
  }

  std::int64_t long_integer() {
    const std::size_t count = byte();
    if (count > 8) refuse("an integer of {} bytes; at most 8 are read", count);
    if (count == 0) return 0;
    const std::uint64_t value = static_cast<std::uint64_t>(little(count));
    const int unused = static_cast<int>(64 - 8 * count);
    return static_cast<std::int64_t>(value << unused) >> unused;  // sign extension from the last byte
  }

  void push(Kind kind, std::int64_t number) {
    stack_.push_back(static_cast<Id>(pickle_.values_.size()));
    pickle_.values_.push_back({kind, number});
  }

  // The value of a float is never needed.
  void push_real() {
    take(8);
    return push(Kind::real, 0);
  }

  void push_text(Kind kind, std::string_view text) {
    pickle_.texts_.emplace_back(text);
    return push(kind, std::ssize(pickle_.texts_) - 1);
  }

  void push_items(Kind kind, std::vector<Id> items) {
    pickle_.lists_.push_back(std::move(items));
    return push(kind, std::ssize(pickle_.lists_) - 1);
  }

  std::string_view line() {
    constexpr std::size_t most = 256;
    const std::string_view rest(reinterpret_cast<const char*>(bytes_.data()) + at_,
                                std::min(bytes_.size() - at_, most));
    const std::size_t end = rest.find('\n');
    if (end == std::string_view::npos) refuse("is damaged: a name has no end");
    at_ += end + 1;
    return rest.substr(0, end);
  }

  void push_name() {
    const std::string_view module = line();
    const std::string name = fmt::format("{} {}", module, line());
    if (std::find(allowed_.begin(), allowed_.end(), name) == allowed_.end())
      refuse("refers to Python's '{}', which plain tensors do not need; nothing was run", name);
    return push_text(Kind::name, name);
  }

  Id top() {
    stack_.push_back(pop_last(1).front());
    return stack_.back();
  }

  std::vector<Id> pop_last(std::size_t count) {
    const std::size_t bottom = marks_.empty() ? 0 : marks_.back();
    if (stack_.size() < bottom + count) refuse("is damaged: needs more values than its stack has");
    std::vector<Id> popped(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return popped;
  }

  std::vector<Id> pop_to_mark() {
    if (marks_.empty()) refuse("is damaged: needs more values than its stack has");
    std::vector<Id> popped = pop_last(stack_.size() - marks_.back());
    marks_.pop_back();
    return popped;
  }

  // Appends to the list or dict on top of the stack.
  void extend(Kind kind, const std::vector<Id>& more) {
    const Id extended = top();
    if (pickle_.kind(extended) != kind)
      refuse("is damaged: adds elements to {}", pickle_.kind_name(extended));
    if (kind == Kind::dict && more.size() % 2 != 0) refuse("is damaged: a key has no value");
    auto& items = pickle_.lists_[static_cast<std::size_t>(pickle_.values_[extended].number)];
    items.insert(items.end(), more.begin(), more.end());
  }

  void call(std::vector<Id> name_and_arguments) {
    const Id name = name_and_arguments[0];
    const Id arguments = name_and_arguments[1];
    if (pickle_.kind(name) != Kind::name || pickle_.kind(arguments) != Kind::tuple)
      refuse("is damaged: calls {} with {}", pickle_.kind_name(name), pickle_.kind_name(arguments));
    if (pickle_.text(name) == "collections OrderedDict") {
      if (!pickle_.items(arguments).empty())
        refuse("makes an OrderedDict from arguments; only an empty one is read");
      return push_items(Kind::dict, {});
    }
    return push_items(Kind::call, std::move(name_and_arguments));
  }

  void put(std::int64_t place) {
    const Id remembered = top();
    if (place > std::ssize(memo_))
      refuse("is damaged: stores value {} when only {} are stored", place, memo_.size());
    if (place == std::ssize(memo_)) memo_.push_back(remembered);
    memo_[static_cast<std::size_t>(place)] = remembered;
  }

  void get(std::int64_t place) {
    if (place >= std::ssize(memo_))
      refuse("is damaged: uses value {} when only {} are stored", place, memo_.size());
    stack_.push_back(memo_[static_cast<std::size_t>(place)]);
  }

  Pickle& pickle_;
  std::span<const std::byte> bytes_;
  std::span<const std::string_view> allowed_;
  std::string file_;
  std::string where_;
  std::size_t at_ = 0;
  bool finished_ = false;
  std::vector<Id> stack_;
  std::vector<std::size_t> marks_;
  std::vector<Id> memo_;
};

Pickle::Pickle(std::span<const std::byte> bytes, std::span<const std::string_view> allowed, std::string file,
               std::string where) {
  if (bytes.size() > std::uint32_t{0xffffffff})
    throw parse_error(file, where, "is a pickle of {} bytes; at most 2^32-1 are read", bytes.size());
  PickleMachine(*this, bytes, allowed, std::move(file), std::move(where)).run();
}

std::optional<Pickle::Id> Pickle::find(Id dict, std::string_view key) const {
  if (kind(dict) != Kind::dict) return std::nullopt;
  const auto pairs = items(dict);
  const auto [sorted, fresh] = sorted_.try_emplace(values_[dict].number);
  for (std::size_t i = 0; fresh && i < pairs.size(); i += 2)
    if (kind(pairs[i]) == Kind::text) sorted->second.insert_or_assign(text(pairs[i]), pairs[i + 1]);
  const auto found = sorted->second.find(key);
  return found == sorted->second.end() ? std::nullopt : std::optional(found->second);
}

std::vector<Pickle::Id> Pickle::all_of(Kind kind) const {
  std::vector<Id> all;
  for (Id id = 0; id < values_.size(); ++id)
    if (values_[id].kind == kind) all.push_back(id);
  return all;
}

std::string_view Pickle::kind_name(Id id) const {
  constexpr std::array<std::string_view, 11> names = {"None",   "a truth value", "an integer", "a float",
                                                      "a text", "a name",        "a list",     "a tuple",
                                                      "a dict", "a tensor",      "a storage"};
  return names[static_cast<std::size_t>(kind(id))];
}

}  // namespace evenkeel::internal
