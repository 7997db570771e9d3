// Damaged zip archives: a bit flipped anywhere is detected or does no harm. Also archives with many members.
#include "evenkeel/io/array_file.h"
#include "evenkeel/io/internal/zip_archive.h"
#include "evenkeel/io/read_recording.h"
#include "tests/io/support.h"

namespace evenkeel {
namespace {

std::string corpus_file(const std::string& name) {
  return read_text(repository_file("tests/fuzz/corpus/" + name));
}

std::uint32_t crc32_of(std::string_view bytes) {
  std::uint32_t crc = 0xffffffffU;
  for (char c : bytes) {
    crc ^= static_cast<std::uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1U) != 0 ? 0xedb88320U : 0U);
  }
  return ~crc;
}

std::string little_endian(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i, value >>= 8U) text += static_cast<char>(value & 0xffU);
  return text;
}

// A zip archive of stored (uncompressed) members.
class StoredZip {
 public:
  void add(const std::string& name, const std::string& content) {
    add_entry(name, content, text_.size());
    text_ += "PK\x03\x04" + entry(name, content) + little_endian(0, 2) + name + content;
  }
  // Adds only a directory entry, which points at bytes that are already in the archive.
  void add_entry(const std::string& name, const std::string& content, std::size_t offset) {
    directory_ += "PK\x01\x02" + little_endian(20, 2) + entry(name, content) + little_endian(0, 12) +
                  little_endian(offset, 4) + name;
    ++members_;
  }
  std::string text() const {
    return text_ + directory_ + "PK\x05\x06" + little_endian(0, 4) + little_endian(members_, 2) +
           little_endian(members_, 2) + little_endian(directory_.size(), 4) + little_endian(text_.size(), 4) +
           little_endian(0, 2);
  }

 private:
  // The header fields that a member shares with its directory entry.
  static std::string entry(const std::string& name, const std::string& content) {
    const std::string size = little_endian(content.size(), 4);
    return little_endian(20, 2) + little_endian(0, 8) + little_endian(crc32_of(content), 4) + size + size +
           little_endian(name.size(), 2);
  }

  std::string text_;
  std::string directory_;
  std::uint64_t members_ = 0;
};

// All numbers of an archive; if not `whole`, only the last number of each array.
std::vector<float> numbers_in(const std::string& npz, bool whole) {
  const auto file = open_array_file(source_of(npz));
  std::vector<float> numbers;
  for (const ArrayInfo& array : file->arrays()) {
    const std::int64_t first = whole || array.num_elements == 0 ? 0 : array.num_elements - 1;
    std::vector<float> some(static_cast<std::size_t>(array.num_elements - first));
    file->reader(array.name)->read(first, std::span(some));
    numbers.insert(numbers.end(), some.begin(), some.end());
  }
  return numbers;
}

// Reads a file of the fuzz corpus once per byte, with one bit of that byte flipped: the same numbers must be
// read, or the file refused.
template <class Refusal, class Read>
void expect_flips_are_noticed(const std::string& name, Read read) {
  const std::string whole = corpus_file(name);
  const auto numbers = read(whole);
  int refused = 0;
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string flipped = whole;
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << at % 8));
    try {
      EXPECT_EQ(read(flipped), numbers) << name << " byte " << at;
    } catch (const Refusal&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 200) << name;
}

class FlippedBits : public testing::TestWithParam<bool> {};

TEST_P(FlippedBits, OfAnNpzAreRefusedOrDoNoHarm) {
  for (const char* name : {"npz/stored", "npz/deflated"}) {
    const auto numbers = numbers_in(corpus_file(name), GetParam());
    // If the flip changes a member's name, the member may no longer be read as an array.
    const auto numbers_if_all = [&](const std::string& npz) {
      const auto read = numbers_in(npz, GetParam());
      return read.size() == numbers.size() ? read : numbers;
    };
    expect_flips_are_noticed<ParseError>(name, numbers_if_all);
  }
}

INSTANTIATE_TEST_SUITE_P(WholeArraysAndTheirLastNumbers, FlippedBits, testing::Bool());

TEST(TorchFile, FlippedBitsAreRefusedOrDoNoHarm) {
  for (const char* name : {"recording/stat", "recording/per_pass", "recording/per_token"})
    expect_flips_are_noticed<Error>(name, [](const std::string& text) {
      const RoutingProfile profile = profile_in(source_of(text));
      return std::vector<std::int64_t>(profile.loads().begin(), profile.loads().end());
    });
}

TEST(Npz, ADamagedMemberIsNamed) {
  std::string npz = corpus_file("npz/stored");
  const std::size_t begin = npz.find("\x93NUMPY");
  npz[begin + 128] = static_cast<char>(npz[begin + 128] ^ 1);
  for (const bool whole : {true, false})
    EXPECT_EQ(message_of<ParseError>([&] { numbers_in(npz, whole); }),
              "f: topk_ids: is damaged: its bytes have another CRC-32 than the archive says");
}

std::string pickled_text(std::string_view text) {
  return "X" + little_endian(text.size(), 4) + std::string(text);
}

std::string pickled_name(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}

// A pickled tensor with one row of two numbers in `storage`.
std::string tensor_in(const std::string& storage) {
  const auto integer = [](std::uint64_t value) { return "J" + little_endian(value, 4); };
  const std::string place = "(" + pickled_text("storage") + pickled_name("torch", "LongStorage") +
                            pickled_text(storage) + pickled_text("cpu") + integer(2) + "tQ";
  return pickled_name("torch._utils", "_rebuild_tensor_v2") + "(" + place + integer(0) + "(" + integer(1) +
         integer(2) + "t(" + integer(2) + integer(1) + "t\x89" + pickled_name("collections", "OrderedDict") +
         ")RtR";
}

// An SGLang recording with a separate storage for each forward pass.
std::string recording_of(int passes) {
  std::string pickle = "\x80\x02}" + pickled_text("last_physical_to_logical_map") + tensor_in("map") + "s" +
                       pickled_text("records") + "](";
  StoredZip zip;
  for (int pass = 0; pass < passes; ++pass) {
    const std::string storage = std::to_string(pass);
    pickle += "}" + pickled_text("global_physical_count") + tensor_in(storage) + "s";
    zip.add("archive/data/" + storage, little_endian(1, 8) + little_endian(2, 8));
  }
  zip.add("archive/data/map", little_endian(0, 8) + little_endian(1, 8));
  zip.add("archive/data.pkl", pickle + "es.");
  zip.add("archive/version", "3\n");
  return zip.text();
}

TEST(TorchFile, TakesTimeInProportionToItsTensors) {
  const auto read = [](int passes) {
    EXPECT_EQ(profile_in(source_of(recording_of(passes))).loads()[1], 2 * passes);
  };
  expect_linear(read, 3000);
}

TEST(ZipArchive, MembersThatLieOnEachOtherAreRefused) {
  StoredZip zip;
  const std::string content(1000, 'x');
  zip.add("a", content);
  for (int i = 0; i < 10; ++i) zip.add_entry("b" + std::to_string(i), content, 0);
  EXPECT_EQ(message_of<ParseError>([&] { internal::ZipArchive(source_of(zip.text()), 100); }),
            "f: b0: overlaps another member: it and the members before it are together longer than the file");
}

TEST(ZipArchive, FindsAMemberAmongManyAndRefusesTwoOfAName) {
  StoredZip zip;
  for (int i = 0; i < 3000; ++i) zip.add(std::to_string(i), "x");
  zip.add("7", "y");
  const internal::ZipArchive archive(source_of(zip.text()), 10000);
  EXPECT_EQ(archive.find("2999")->index, 2999U);
  EXPECT_EQ(archive.find("none"), nullptr);
  EXPECT_EQ(message_of<ParseError>([&] { archive.find("7"); }), "f: 7: is in the archive twice");
}

}  // namespace
}  // namespace evenkeel
