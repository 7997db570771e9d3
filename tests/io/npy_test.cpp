// The npy reader, and the headers it refuses.
#include "evenkeel/io/array_file.h"
#include "tests/io/support.h"

namespace evenkeel {
namespace {

std::string npy_refusal(std::string_view dictionary, std::string_view data = "") {
  return message_of<ParseError>([&] { open_array_file(source_of(npy_text(dictionary, data))); });
}

TEST(Npy, HeadersMayBeWrittenInAnyOrderAndSpacing) {
  for (const char* header : {"{'descr': '<i2', 'fortran_order': False, 'shape': (2,), }",
                             "{ \"shape\":(2,),'fortran_order':False,\"descr\":'<i2'}  \n",
                             "{'fortran_order': True, 'descr': 'i2', 'shape': (1, 2, 1)}"}) {
    const auto file = open_array_file(source_of(npy_text(header, std::string("\x05\0\x07\0", 4))));
    EXPECT_EQ(read_integers(*file, "").values, (std::vector<std::int64_t>{5, 7})) << header;
  }
}

TEST(Npy, AScalarHasNoDimensions) {
  const auto file =
      open_array_file(source_of(npy_text("{'descr': '|u1', 'fortran_order': False, 'shape': ()}", "A")));
  EXPECT_TRUE(file->at("").shape.empty());
  EXPECT_EQ(read_integers(*file, "").values, std::vector<std::int64_t>{65});
}

TEST(Npy, WhatNumpySavesAndWeDoNotReadSaysWhatToDo) {
  const std::pair<const char*, const char*> saved[] = {
      {"fortran.npy", "is in Fortran order; save it with numpy.ascontiguousarray()"},
      {"big_endian.npy", "element type '>i4' is big-endian; save it with astype('<i4')"},
      {"objects.npy", "holds Python objects, which are never read; save an integer or float array"},
      {"records.npy", "holds records, not one element type"}};
  for (const auto& [name, why] : saved)
    EXPECT_EQ(message_of<ParseError>([&] { open_array_file(test_data(name)); }),
              test_data(name) + ": header: " + why);
}

TEST(Npy, HeadersThatAreDamagedAreShown) {
  const std::string needs = "f: header: needs descr, fortran_order and shape and nothing else, but is ";
  const std::string whole = "{'descr': '|u1', 'fortran_order': False, 'shape': (1,), }";
  for (const std::string& header :
       std::vector<std::string>{"{'descr': '<i4', 'fortran_order': False}", "{'descr: 3", "{descr: 3",
                                "'descr'", "{'color': 'red'}", "{'shape': (1 1)}", "{'shape': (02,)}",
                                "{'descr': '|u1', 'fortran_order': false, 'shape': (1,)}",
                                whole + " 'shape': (2,)}", whole + "#", whole + "}"})
    EXPECT_EQ(npy_refusal(header, "A"), needs + header);
  EXPECT_EQ(npy_refusal(whole + std::string("\0 \n", 3), "A"), needs + whole + "\\x00 \\n");
  EXPECT_EQ(npy_refusal(whole + "\t{}", "A"), needs + whole + "\\t{}");
  const auto with = [](const std::string& descr, const std::string& order, const std::string& shape) {
    return npy_refusal("{'descr': " + descr + ", 'fortran_order': " + order + ", 'shape': " + shape + "}");
  };
  EXPECT_EQ(with("'<c8'", "False", "()"),
            "f: header: element type '<c8' is not supported; save an integer or float array");
  EXPECT_EQ(with("'<U0'", "False", "()"),
            "f: header: element type '<U0' is not supported; save an integer or float array");
  EXPECT_EQ(with("'|u1'", "1", "()"), "f: header: fortran_order is neither True nor False");
  for (const char* shape : {"(2)", "(,)", "[2, 3]", "(-1,)", "(2.0,)", "(1e1,)", "('a',)", "2"})
    EXPECT_EQ(with("'|u1'", "False", shape),
              "f: header: shape is not a tuple of whole numbers, such as (3,) or (3, 4)")
        << shape;
  EXPECT_EQ(with("'|u1'", "False", "(9223372036854775808,)"),
            "f: header.shape[0]: 9223372036854775808 is above 2^63-1");
}

TEST(Npy, ShapesThatDoNotFitTheBytesAreRefused) {
  const auto with = [](std::string_view shape, std::string_view data) {
    return npy_refusal("{'descr': '<i8', 'fortran_order': False, 'shape': " + std::string(shape) + "}", data);
  };
  EXPECT_EQ(with("(2,)", "12345678"), "f: shape: [2] of int64 does not fit the 8 bytes of data");
  EXPECT_EQ(with("(1,)", "123456789"), "f: shape: [1] of int64 does not fit the 9 bytes of data");
  EXPECT_EQ(with("(4294967296, 4294967296)", ""),
            "f: shape: [4294967296, 4294967296] of int64 does not fit the 0 bytes of data");
  EXPECT_EQ(with("(1152921504606846976, 2)", ""),
            "f: shape: [1152921504606846976, 2] of int64 does not fit the 0 bytes of data");
}

TEST(Npy, LengthsAndVersionsAreChecked) {
  expect_refused([](const std::string& text) { open_array_file(source_of("\x93NUMPY" + text)); },
                 {{std::string("\x01\x00\xff\xff{}", 6),
                   "f: byte 8: claims a header of 65535 bytes in a file of 12 bytes"},
                  {std::string("\x09\x00\x02\x00{}", 6),
                   "f: byte 6: is npy version 9.0; only 1.0, 2.0 and 3.0 are read"},
                  {std::string("\x01\x02\x02\x00{}", 6),
                   "f: byte 6: is npy version 1.2; only 1.0, 2.0 and 3.0 are read"},
                  {"\x02", "f: header: is cut off by the end of the file"}});
  const std::string dictionary = "{'descr': '|u1', 'fortran_order': False, 'shape': (1,), }";
  const auto padded = [&](std::size_t length) {
    return dictionary + std::string(length - dictionary.size(), ' ');
  };
  EXPECT_NO_THROW(open_array_file(source_of(npy_text(padded(10'000), "A"))));
  EXPECT_EQ(npy_refusal(padded(10'001), "A"),
            "f: byte 8: claims a header of 10001 bytes in a file of 10012 bytes");
}

}  // namespace
}  // namespace evenkeel
