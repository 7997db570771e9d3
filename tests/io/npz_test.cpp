// The npz reader, also on archives with false headers. The archives are seeds of the fuzz targets
// (tests/fuzz/make_corpus.py).
#include "evenkeel/io/array_file.h"
#include "evenkeel/io/internal/array_writer.h"
#include "evenkeel/io/trace_file.h"
#include "tests/io/support.h"

namespace evenkeel {
namespace {

using testing::StartsWith;

ByteSource seed(std::string_view name) {
  return source_of(read_text(repository_file("tests/fuzz/corpus/npz/") + std::string(name)));
}

TEST(Npz, MembersThatAreNoArraysAreSkipped) {
  const auto file = open_array_file(seed("other-member"));
  ASSERT_EQ(file->arrays().size(), 1U);
  EXPECT_EQ(file->arrays().front().name, "topk_ids");
}

TEST(Npz, ATextIsMetadata) {
  const auto file = open_array_file(seed("text"));
  EXPECT_EQ(file->find("note"), nullptr);
  EXPECT_EQ(file->metadata().at("note"), "by hand");
  const auto refusal = [](const char* name) {
    return message_of<ParseError>([&] { open_array_file(seed(name)); });
  };
  EXPECT_EQ(refusal("text-not-ascii"), "f: note: is a text with character code 252; only ASCII is read");
  EXPECT_EQ(refusal("texts"),
            "f: notes.header: element type '<U1' is not supported; save an integer or float array");
}

TEST(Npz, AnArchiveWithoutMembersHasNoArrays) {
  EXPECT_TRUE(open_array_file(seed("empty"))->arrays().empty());
}

TEST(Npz, ArchivesThatAreDamagedAreRefused) {
  const auto read = [](const std::string& name) {
    const auto file = open_array_file(seed(name));
    for (const ArrayInfo& array : file->arrays()) read_floats(*file, array.name);
  };
  const std::vector<Refused> damaged = {
      {"short", StartsWith("f: is not a readable zip archive: Not")},
      {"bits-flipped", StartsWith("f: topk_ids: cannot be unpacked")},
      {"bzip2", "f: topk_ids: is compressed by zip method 12; only stored and deflated are read"},
      {"damaged", "f: topk_ids.byte 0: does not begin like npy"},
      {"claims-more", "f: a.shape: [1000000000000] of uint8 does not fit the 0 bytes of data"},
      {"size-lies", "f: a: ends at byte 74, before its stated size"},
  };
  expect_refused(read, damaged);
}

TEST(Npz, AnArchiveOfThousandsOfMembersIsRefused) {
  const TempFolder folder;
  std::vector<internal::ArrayToWrite> arrays;
  const std::int64_t one = 1;
  for (int i = 0; i < 1025; ++i)
    arrays.push_back(internal::integers_to_write(std::to_string(i), {1}, std::span(&one, 1)));
  internal::write_arrays(arrays, {}, folder / "many.npz", FileFormat::npz);
  EXPECT_EQ(message_of<ParseError>([&] { open_array_file(folder / "many.npz"); }),
            (folder / "many.npz") + ": has 1025 members; at most 1024 are read");
}

TEST(Npz, ABombIsNotUnpackedIntoMemory) {
  // A file of a few kB that unpacks to 1.6 MB of offsets: above the limit of 1 MiB + 64 x the file size.
  const auto source = seed("bomb");
  EXPECT_LT(source.size(), 4000);
  EXPECT_EQ(message_of<ParseError>([&] { open_trace(source); }),
            "f: sequence_offsets: [200000] of int64 needs far more memory than the size of the file allows; "
            "is the file damaged?");
}

}  // namespace
}  // namespace evenkeel
