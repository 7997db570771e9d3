#include "evenkeel/io/array_file.h"

#include <sys/stat.h>

#include "tests/io/support.h"

namespace evenkeel {
namespace {

using ArrayFiles = InFolder;

TEST_F(ArrayFiles, IsKnownByItsContentWhateverItsName) {
  for (const auto& [name, copy, format] : {std::tuple("stored.npz", "a.safetensors", FileFormat::npz),
                                           std::tuple("trace.safetensors", "b.npy", FileFormat::safetensors),
                                           std::tuple("ids_int8.npy", "c", FileFormat::npy)}) {
    std::filesystem::copy(test_data(name), folder / copy);
    EXPECT_EQ(open_array_file(folder / copy)->format(), format);
  }
  EXPECT_EQ(detect_format(source_of(" \n{\"loads\": [1]}")), FileFormat::json);
  EXPECT_EQ(detect_format(source_of("\xef\xbb\xbf[1]")), FileFormat::json);
}

TEST_F(ArrayFiles, ThatIsNotThereOrNotAFileSaysSo) {
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  const std::pair<std::string, const char*> no_files[] = {
      {folder / "missing.npz", "cannot be opened: No such file or directory"},
      {folder / ".", "is a folder, not a file"},
      {"/dev/null", "is not an ordinary file"},
      {folder / "pipe", "is not an ordinary file"}};
  for (const auto& [path, why] : no_files)
    EXPECT_EQ(message_of<ParseError>([&] { open_array_file(path); }), path + ": " + why);
}

TEST_F(ArrayFiles, OfNoKnownKindSaysSo) {
  expect_refused([](const std::string& text) { open_array_file(source_of(text)); },
                 {{"", "f: is empty"},
                  {"hello", "f: byte 0: is neither safetensors, npz, npy, JSON nor a table of numbers"},
                  {"{}", "f: is JSON, but safetensors, npz or npy is needed"}});
}

TEST_F(ArrayFiles, ListsItsArraysWhenAskedForAnother) {
  const auto file = open_array_file(test_data("trace.safetensors"));
  EXPECT_EQ(message_of<ParseError>([&] { read_floats(*file, "loads"); }),
            test_data("trace.safetensors") +
                ": loads: no such array; the file has sequence_offsets, topk_ids, topk_weights");
}

TEST_F(ArrayFiles, ReadsAnyRangeInAnyOrder) {
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

TEST_F(ArrayFiles, RefusesRangesThatAreNotThereAndIntegersThatAreFloats) {
  const auto file = open_array_file(test_data("trace.safetensors"));
  std::vector<std::int64_t> out(2);
  EXPECT_THROW(file->reader("topk_ids")->read(65, std::span(out)), ParseError);
  EXPECT_THROW(file->reader("topk_ids")->read(-1, std::span(out)), ParseError);
  EXPECT_EQ(message_of<ParseError>([&] { read_integers(*file, "topk_weights"); }),
            test_data("trace.safetensors") + ": topk_weights: is float16, not integers");
}

TEST_F(ArrayFiles, AReaderOutlivesItsFile) {
  for (const char* name : {"trace.safetensors", "deflated.npz"}) {
    const auto reader = open_array_file(test_data(name))->reader("topk_ids");
    std::vector<std::int64_t> out(1);
    reader->read(1, std::span(out));
    EXPECT_EQ(out[0], 5) << name;
  }
}

TEST_F(ArrayFiles, ThatShrinksWhileReadIsAnErrorAndNotASignal) {
  std::filesystem::copy(test_data("ids_int64.npy"), folder / "a.npy");
  const auto file = open_array_file(folder / "a.npy");
  std::filesystem::resize_file(folder / "a.npy", 200);
  EXPECT_EQ(message_of<ParseError>([&] { read_integers(*file, ""); }),
            (folder / "a.npy") + ": byte 200: the file became shorter while read");
}

}  // namespace
}  // namespace evenkeel
