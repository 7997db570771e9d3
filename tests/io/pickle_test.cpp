#include "evenkeel/io/internal/pickle.h"

#include <array>
#include <limits>
#include <string>

#include "tests/io/support.h"

namespace evenkeel::internal {
namespace {

using namespace std::string_literals;
using Kind = Pickle::Kind;

constexpr std::array<std::string_view, 2> allowed = {"torch LongStorage", "collections OrderedDict"};

Pickle pickle_of(const std::string& instructions) {
  return {bytes_of("\x80\x02"s + instructions), allowed, "f", "data.pkl"};
}

std::string pickle_refusal(const std::string& instructions) {
  return message_of<ParseError>([&] { pickle_of(instructions); });
}

TEST(Pickle, HasNumbersAsPythonWritesThem) {
  const auto integer = [](const std::string& instructions) {
    const Pickle pickle = pickle_of(instructions + ".");
    EXPECT_EQ(pickle.kind(pickle.root()), Kind::integer);
    return pickle.integer(pickle.root());
  };
  EXPECT_EQ(integer("K\xff"), 255);
  EXPECT_EQ(integer("M\x01\x02"), 513);
  EXPECT_EQ(integer("J\xfb\xff\xff\xff"), -5);
  EXPECT_EQ(integer("J\x70\x11\x01\x00"s), 70000);
  EXPECT_EQ(integer("\x8a\x00"s), 0);
  EXPECT_EQ(integer("\x8a\x01\xff"), -1);
  EXPECT_EQ(integer("\x8a\x06\x00\x00\x00\x00\x00\x01"s), std::int64_t{1} << 40);
  EXPECT_EQ(integer("\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80"s), std::numeric_limits<std::int64_t>::min());
}

TEST(Pickle, HasListsTuplesAndDictsOfThem) {
  // A pair: the dictionary {"a": [1, None], "b": (True,)} and the string "a". The second "a" is fetched from
  // the memo.
  const Pickle pickle = pickle_of("}q\x00(X\x01\x00\x00\x00"s + "aq\x01](K\x01Ne"s + "X\x01\x00\x00\x00"s +
                                  "b\x88\x85uh\x01\x86."s);
  const auto pair = pickle.items(pickle.root());
  ASSERT_EQ(pickle.kind(pickle.root()), Kind::tuple);
  ASSERT_EQ(pair.size(), 2U);
  EXPECT_EQ(pickle.text(pair[1]), "a");
  const auto list = pickle.find(pair[0], "a");
  ASSERT_TRUE(list);
  ASSERT_EQ(pickle.items(*list).size(), 2U);
  EXPECT_EQ(pickle.integer(pickle.items(*list)[0]), 1);
  EXPECT_EQ(pickle.kind(pickle.items(*list)[1]), Kind::none);
  EXPECT_EQ(pickle.kind(*pickle.find(pair[0], "b")), Kind::tuple);
  EXPECT_FALSE(pickle.find(pair[0], "c"));
}

TEST(Pickle, FindsTheLastOfAKeyInALargeDictAsOften) {
  // {"0": 0, "1": 1, ...} with each key twice; every key is looked up.
  constexpr int keys = 50000;
  const auto text = [](int key) {
    const std::string digits = std::to_string(key);
    return "X"s + static_cast<char>(digits.size()) + "\x00\x00\x00"s + digits;
  };
  const auto number = [](int value) {
    std::string little = "J";
    for (int shift = 0; shift < 32; shift += 8) little += static_cast<char>((value >> shift) & 0xff);
    return little;
  };
  std::string dict = "}(";
  for (int key = 0; key < keys; ++key) dict += text(key) + number(0);
  for (int key = 0; key < keys; ++key) dict += text(key) + number(key);
  const Pickle pickle = pickle_of(dict + "u.");
  const auto find_all = [&] {
    for (int key = 0; key < keys; ++key)
      ASSERT_EQ(pickle.integer(*pickle.find(pickle.root(), std::to_string(key))), key);
  };
  EXPECT_LT(cpu_seconds(find_all), 1);
  EXPECT_FALSE(pickle.find(pickle.root(), "none"));
}

TEST(Pickle, TakesAnOrderedDictForADict) {
  const Pickle pickle = pickle_of("ccollections\nOrderedDict\n)RX\x01\x00\x00\x00"s + "aK\x07s."s);
  EXPECT_EQ(pickle.integer(*pickle.find(pickle.root(), "a")), 7);
}

TEST(Pickle, MayContainItselfWithoutHarm) {
  const Pickle pickle = pickle_of("]q\x00h\x00"s + "a.");
  EXPECT_EQ(pickle.items(pickle.root())[0], pickle.root());
}

TEST(Pickle, MayBeNestedAsDeepAsItLikes) {
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "](";
  EXPECT_EQ(pickle_refusal(deep), "f: data.pkl byte 200002: ends 1 bytes too early");
  deep = std::string(100000, ']') + std::string(99999, 'a') + ".";
  EXPECT_EQ(pickle_of(deep).items(pickle_of(deep).root()).size(), 1U);
}

TEST(Pickle, EndsWhereItsFileDoes) {
  EXPECT_EQ(pickle_refusal("N.N."), "f: data.pkl byte 4: continues after its end");
}

TEST(Pickle, RunsNothing) {
  const std::string rest = "', which plain tensors do not need; nothing was run";
  EXPECT_EQ(pickle_refusal("cposix\nsystem\nX\x02\x00\x00\x00"s + "ls\x85R."),
            "f: data.pkl byte 16: refers to Python's 'posix system" + rest);
  EXPECT_EQ(pickle_refusal("cbuiltins\neval\n."),
            "f: data.pkl byte 17: refers to Python's 'builtins eval" + rest);
}

TEST(Pickle, RefusesInstructionsThatPlainDataDoesNotNeed) {
  // Opcodes for objects, extension codes, protocol 4's frames and stack globals, and text persistent ids.
  for (char instruction : "oib\x81\x82\x92\x93\x94\x95PdlS\xff"s) {
    EXPECT_THAT(pickle_refusal(std::string{'N', instruction, '.'}),
                testing::HasSubstr("plain data does not need it"))
        << int{instruction};
  }
}

TEST(Pickle, RefusesProgramsThatMakeNoSense) {
  EXPECT_EQ(pickle_refusal("."), "f: data.pkl byte 3: is damaged: needs more values than its stack has");
  EXPECT_EQ(pickle_refusal("t"), "f: data.pkl byte 3: is damaged: needs more values than its stack has");
  EXPECT_EQ(pickle_refusal("N(a."), "f: data.pkl byte 5: is damaged: needs more values than its stack has");
  EXPECT_EQ(pickle_refusal("K\x01K\x02"s + "a."),
            "f: data.pkl byte 7: is damaged: adds elements to an integer");
  EXPECT_EQ(pickle_refusal("}(NNNu."), "f: data.pkl byte 8: is damaged: a key has no value");
  EXPECT_EQ(pickle_refusal("Nq\x02."),
            "f: data.pkl byte 5: is damaged: stores value 2 when only 0 are stored");
  EXPECT_EQ(pickle_refusal("h\x00."s), "f: data.pkl byte 4: is damaged: uses value 0 when only 0 are stored");
  EXPECT_EQ(pickle_refusal("NNR."), "f: data.pkl byte 5: is damaged: calls None with None");
  EXPECT_EQ(pickle_refusal("ccollections\nOrderedDict\nN\x85R."),
            "f: data.pkl byte 30: makes an OrderedDict from arguments; only an empty one is read");
  EXPECT_EQ(pickle_refusal("\x8a\x09"s), "f: data.pkl byte 4: an integer of 9 bytes; at most 8 are read");
  EXPECT_EQ(pickle_refusal("X\xff\xff\xff\xff"), "f: data.pkl byte 7: ends 4294967295 bytes too early");
  EXPECT_EQ(pickle_refusal("c" + std::string(1000, 'x')),
            "f: data.pkl byte 3: is damaged: a name has no end");
  EXPECT_EQ(message_of<ParseError>([] { Pickle(bytes_of("\x80\x04."), allowed, "f", "p"); }),
            "f: p byte 2: does not begin as a pickle of protocol 2");
  EXPECT_EQ(message_of<ParseError>([] { Pickle({}, allowed, "f", "p"); }),
            "f: p byte 0: ends 1 bytes too early");
}

}  // namespace
}  // namespace evenkeel::internal
