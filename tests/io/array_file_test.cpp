#include "evenkeel/io/array_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "evenkeel/base/error.h"
#include "tests/io/support.h"
#include "tests/routing/message.h"

namespace evenkeel {
namespace {

TEST(ArrayFile, IsKnownByItsContentWhateverItsName) {
  TempFolder folder;
  std::filesystem::copy(test_data("stored.npz"), folder / "a.safetensors");
  std::filesystem::copy(test_data("trace.safetensors"), folder / "b.npy");
  std::filesystem::copy(test_data("ids_int8.npy"), folder / "c");
  EXPECT_EQ(open_array_file(folder / "a.safetensors")->format(), FileFormat::npz);
  EXPECT_EQ(open_array_file(folder / "b.npy")->format(), FileFormat::safetensors);
  EXPECT_EQ(open_array_file(folder / "c")->format(), FileFormat::npy);
  EXPECT_EQ(detect_format(source_of(" \n{\"loads\": [1]}")), FileFormat::json);
  EXPECT_EQ(detect_format(source_of("\xef\xbb\xbf[1]")), FileFormat::json);
}

TEST(ArrayFile, ThatIsNotThereOrNotAFileSaysSo) {
  TempFolder folder;
  EXPECT_EQ(message_of<ParseError>([&] { open_array_file(folder / "missing.npz"); }),
            (folder / "missing.npz") + ": cannot be opened: No such file or directory");
  EXPECT_EQ(message_of<ParseError>([&] { open_array_file(folder / "."); }),
            (folder / ".") + ": is a folder, not a file");
  EXPECT_EQ(message_of<ParseError>([&] { open_array_file("/dev/null"); }),
            "/dev/null: is not an ordinary file");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(message_of<ParseError>([&] { open_array_file(folder / "pipe"); }),
            (folder / "pipe") + ": is not an ordinary file");
}

TEST(ArrayFile, OfNoKnownKindSaysSo) {
  EXPECT_EQ(message_of<ParseError>([] { open_array_file(source_of("")); }), "f: is empty");
  EXPECT_EQ(message_of<ParseError>([] { open_array_file(source_of("hello")); }),
            "f: byte 0: is neither safetensors, npz, npy, JSON nor a table of numbers");
  EXPECT_EQ(message_of<ParseError>([] { open_array_file(source_of("{}")); }),
            "f: is JSON where safetensors, npz or npy is needed");
}

TEST(ArrayFile, ListsItsArraysWhenAskedForAnother) {
  const auto file = open_array_file(test_data("trace.safetensors"));
  EXPECT_EQ(message_of<ParseError>([&] { read_floats(*file, "loads"); }),
            test_data("trace.safetensors") +
                ": loads: no such array; there are sequence_offsets, topk_ids, topk_weights");
}

TEST(ArrayFile, ReadsAnyRangeInAnyOrder) {
  for (const char* name : {"trace.safetensors", "stored.npz", "deflated.npz"}) {
    const auto file = open_array_file(test_data(name));
    const IntArray whole = read_integers(*file, "topk_ids");
    ASSERT_EQ(whole.values.size(), 66U);
    const auto reader = file->reader("topk_ids");
    for (std::int64_t first : {60, 0, 31, 30, 65, 66}) {
      std::vector<std::int64_t> part(static_cast<std::size_t>(std::min<std::int64_t>(6, 66 - first)));
      reader->read(first, std::span(part));
      for (std::size_t i = 0; i < part.size(); ++i)
        EXPECT_EQ(part[i], whole.values[static_cast<std::size_t>(first) + i]) << name << " from " << first;
    }
  }
}

TEST(ArrayFile, RefusesRangesThatAreNotThereAndIntegersThatAreFloats) {
  const auto file = open_array_file(test_data("trace.safetensors"));
  std::vector<std::int64_t> out(2);
  EXPECT_THROW(file->reader("topk_ids")->read(65, std::span(out)), ParseError);
  EXPECT_THROW(file->reader("topk_ids")->read(-1, std::span(out)), ParseError);
  EXPECT_EQ(message_of<ParseError>([&] { read_integers(*file, "topk_weights"); }),
            test_data("trace.safetensors") + ": topk_weights: is float16, not integers");
}

TEST(ArrayFile, AReaderOutlivesItsFile) {
  for (const char* name : {"trace.safetensors", "deflated.npz"}) {
    const auto reader = open_array_file(test_data(name))->reader("topk_ids");
    std::vector<std::int64_t> out(1);
    reader->read(1, std::span(out));
    EXPECT_EQ(out[0], 5) << name;
  }
}

TEST(ArrayFile, ThatShrinksWhileReadIsAnErrorAndNotASignal) {
  TempFolder folder;
  std::filesystem::copy(test_data("ids_int64.npy"), folder / "a.npy");
  const auto file = open_array_file(folder / "a.npy");
  std::filesystem::resize_file(folder / "a.npy", 200);
  EXPECT_EQ(message_of<ParseError>([&] { read_integers(*file, ""); }),
            (folder / "a.npy") + ": byte 200: the file became shorter while read");
}

}  // namespace
}  // namespace evenkeel
