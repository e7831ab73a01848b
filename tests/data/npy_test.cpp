#include "bilevel/data/npy.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "bilevel/core/random.h"

namespace bilevel {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class Npy : public ::testing::Test {
 protected:
  Npy() {
    std::string name = (std::filesystem::temp_directory_path() / "npy_test.XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    path_ = (folder_ / "a.npy").string();
  }
  ~Npy()
      override {  // not remove_all, which crashes with LibTorch 2's wheels: they export an older libstdc++'s
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      std::filesystem::remove(entry.path());
    std::filesystem::remove(folder_);
  }

  void put(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  std::string bytes() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  Tensor read(const std::string& bytes) const {
    put(bytes);
    return read_npy(path_);
  }
  std::string message(const std::string& bytes) const {
    try {
      read(bytes);
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "nothing was thrown";
  }
  size_t files() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }

  std::filesystem::path folder_;
  std::string path_;
};

template <typename T>
std::string raw(std::initializer_list<T> values) {
  std::string bytes;
  for (const T value : values) bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  return bytes;
}

// A file made by hand, after the format's description.
std::string file(const std::string& header, const std::string& data, char version = 1) {
  std::string bytes = "\x93NUMPY";
  bytes += {version, '\0'};
  const auto length = static_cast<uint32_t>(header.size());
  bytes += raw<uint32_t>({length}).substr(0, version == 1 ? 2 : 4);
  return bytes + header + data;
}
std::string header(const std::string& descr, const std::string& shape, const char* fortran = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }\n";
}

// numpy.save("a.npy", numpy.array([[1, 2.5, -3], [4, 5, 6]], "<f4")), NumPy 1.24, byte for byte.
std::string reference() {
  std::string text = "\x93NUMPY";
  text += {'\x01', '\0', '\x76', '\0'};
  text += "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
  text.append(58, ' ');
  text += '\n';
  const unsigned char data[] = {0, 0, 0x80, 0x3f, 0, 0, 0x20, 0x40, 0, 0, 0x40, 0xc0,
                                0, 0, 0x80, 0x40, 0, 0, 0xa0, 0x40, 0, 0, 0xc0, 0x40};
  text.append(reinterpret_cast<const char*>(data), sizeof data);
  return text;
}
Tensor reference_values() { return at::tensor({1.F, 2.5F, -3.F, 4.F, 5.F, 6.F}).view({2, 3}); }

TEST_F(Npy, reads_and_writes_numpys_own_bytes) {
  EXPECT_EQ(reference().size(), 128U + 24U);
  EXPECT_TRUE(read(reference()).equal(reference_values()));
  std::filesystem::remove(path_);
  write_npy(path_, reference_values());
  EXPECT_EQ(bytes(), reference());
}

TEST_F(Npy, reads_every_type) {
  const auto check = [&](const char* descr, const std::string& data, const Tensor& expected) {
    const Tensor tensor = read(file(header(descr, fmt::format("({},)", expected.numel())), data));
    EXPECT_EQ(tensor.scalar_type(), expected.scalar_type()) << descr;
    EXPECT_TRUE(tensor.equal(expected)) << descr << "\n" << tensor;
  };
  const std::vector<double> numbers{0, 1, -2, 100};
  const Tensor doubles = at::tensor(numbers);
  check("<f2", raw<uint16_t>({0x3c00, 0xc000}), at::tensor(std::vector<double>{1, -2}).to(at::kHalf));
  check("<f4", raw<float>({0, 1, -2, 100}), doubles.to(at::kFloat));
  check("<f8", raw<double>({0, 1, -2, 100}), doubles);
  check("|i1", raw<int8_t>({0, 1, -2, 100}), doubles.to(at::kChar));
  check("<i2", raw<int16_t>({0, 1, -2, 100}), doubles.to(at::kShort));
  check("<i4", raw<int32_t>({0, 1, -2, 100}), doubles.to(at::kInt));
  check("<i8", raw<int64_t>({0, 1, -2, 100}), doubles.to(at::kLong));
  check("=i8", raw<int64_t>({0, 1, -2, 100}), doubles.to(at::kLong));
  check("|u1", raw<uint8_t>({0, 1, 200, 255}), at::tensor(std::vector<double>{0, 1, 200, 255}).to(at::kByte));
  check("<u2", raw<uint16_t>({0, 1, 40000, 65535}), at::tensor(std::vector<int32_t>{0, 1, 40000, 65535}));
  check("<u4", raw<uint32_t>({0, 3000000000, 4294967295}),
        at::tensor(std::vector<int64_t>{0, 3000000000, 4294967295}));
  // A byte that is neither 0 nor 1 is true, and no such byte reaches a bool.
  check("|b1", raw<uint8_t>({0, 1, 2, 255}), at::tensor(std::vector<double>{0, 1, 1, 1}).to(at::kBool));
  const Tensor bits = read(file(header("|b1", "(2,)"), raw<uint8_t>({2, 255}))).view(at::kByte);
  EXPECT_TRUE(bits.equal(at::ones({2}, at::kByte)));
}

TEST_F(Npy, reads_big_endian_numbers) {
  const std::string f4{'\x3f', '\x80', 0, 0, '\xc0', 0x20, 0, 0};
  EXPECT_TRUE(read(file(header(">f4", "(2,)"), f4)).equal(at::tensor({1.F, -2.5F})));
  EXPECT_EQ(read(file(header(">i2", "()"), {1, 2})).item<int64_t>(), 258);
  EXPECT_EQ(read(file(header(">u2", "()"), {'\xff', '\xfe'})).item<int64_t>(), 65534);
  EXPECT_EQ(read(file(header(">i8", "()"), std::string{0, 0, 0, 0, 0, 0, 1, 0})).item<int64_t>(), 256);
}

TEST_F(Npy, reads_fortran_order) {
  // The first index runs fastest: element (i, j, k) of a 2 x 3 x 2 array lies at i + 2 j + 6 k.
  const std::string data = raw<int32_t>({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  const Tensor tensor = read(file(header("<i4", "(2, 3, 2)", "True"), data));
  EXPECT_TRUE(tensor.is_contiguous());
  ASSERT_EQ(tensor.sizes(), at::IntArrayRef({2, 3, 2}));
  for (int64_t i = 0; i < 2; ++i) {
    for (int64_t j = 0; j < 3; ++j) {
      for (int64_t k = 0; k < 2; ++k) EXPECT_EQ(tensor[i][j][k].item<int64_t>(), i + 2 * j + 6 * k);
    }
  }
  const Tensor swapped = read(file(header(">i2", "(1, 2)", "True"), {0, 1, 0, 2}));
  EXPECT_TRUE(swapped.equal(at::tensor(std::vector<int32_t>{1, 2}).to(at::kShort).view({1, 2})));
}

TEST_F(Npy, reads_all_versions_and_ways_to_write_the_dictionary) {
  const std::string data = raw<double>({1, 2});
  const Tensor expected = at::tensor(std::vector<double>{1, 2});
  for (const char version : {'\1', '\2', '\3'}) {
    EXPECT_TRUE(read(file(header("<f8", "(2,)"), data, version)).equal(expected)) << int{version};
  }
  for (const char* text : {"{'shape': (2,), 'descr': '<f8', 'fortran_order': False}",
                           "{\"descr\":\"<f8\",\"shape\":(2,),\"fortran_order\":False}   \n",
                           " { 'descr' : '<f8' , 'shape' : ( 2L , ) , 'fortran_order' : True , } "}) {
    EXPECT_TRUE(read(file(text, data)).equal(expected)) << text;
  }
  EXPECT_EQ(read(file(header("<f8", "(2)"), data)).sizes(), at::IntArrayRef({2}));
}

TEST_F(Npy, round_trips_types_shapes_and_views) {
  const std::vector<std::vector<int64_t>> shapes{{}, {1}, {5}, {0}, {3, 0, 2}, {2, 3, 4}, {1, 1, 1, 1, 2}};
  for (const auto type : {at::kFloat, at::kDouble, at::kLong, at::kInt, at::kShort, at::kChar, at::kByte,
                          at::kBool, at::kHalf}) {
    for (const auto& shape : shapes) {
      const Tensor tensor = Random(9).normal(shape, at::kDouble).mul(50).abs().to(type);
      write_npy(path_, tensor);
      const Tensor again = read_npy(path_);
      EXPECT_EQ(again.scalar_type(), type);
      EXPECT_EQ(again.sizes(), tensor.sizes());
      EXPECT_TRUE(again.equal(tensor)) << type << " " << tensor.sizes();
      EXPECT_EQ((bytes().size() - tensor.nbytes()) % 64, 0U);  // the data is aligned, as the format asks
    }
  }
  const Tensor matrix = at::arange(12, at::kDouble).view({3, 4});
  for (const Tensor& view :
       {matrix.t(), matrix.select(1, 2), matrix.slice(1, 0, 4, 2), matrix.clone().requires_grad_()}) {
    write_npy(path_, view);
    EXPECT_TRUE(read_npy(path_).equal(view));
  }
  if (at::hasCUDA()) {
    write_npy(path_, matrix.to(at::kCUDA));
    EXPECT_TRUE(read_npy(path_).equal(matrix));
  }
  EXPECT_EQ(files(), 1U);  // nothing is left beside
}

TEST_F(Npy, every_truncation_is_an_error_that_names_the_file_and_the_offset) {
  for (const char version : {'\1', '\2'}) {
    const std::string whole = file(header("<f4", "(2, 3)"), reference().substr(128), version);
    ASSERT_TRUE(read(whole).equal(reference_values()));
    for (size_t length = 0; length < whole.size(); ++length) {
      EXPECT_THAT(message(whole.substr(0, length)),
                  AllOf(StartsWith(path_ + ": byte "), HasSubstr("expected"), HasSubstr("found"),
                        HasSubstr("cut short")))
          << length;
    }
    EXPECT_THAT(message(whole + "x"),
                AllOf(HasSubstr("24 bytes"), HasSubstr("25 bytes"), HasSubstr("several arrays")));
  }
}

TEST_F(Npy, every_changed_byte_is_read_or_refused) {
  const std::string whole = reference();
  int64_t refused = 0;
  for (size_t at = 0; at < 128; ++at) {
    for (const int change : {1, 2, 16, 128, 255}) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ change);
      try {
        EXPECT_EQ(read(damaged).nbytes(), 24U);  // another order or type of the same bytes, at most
      } catch (const std::runtime_error& error) {
        EXPECT_THAT(error.what(), StartsWith(path_ + ": byte "));
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 600);
}

TEST_F(Npy, absurd_lengths_and_shapes_take_no_memory) {
  std::string endless = "\x93NUMPY";
  endless += {'\x02', '\0', '\xff', '\xff', '\xff', '\xff'};
  EXPECT_THAT(message(endless + std::string(100, ' ')), AllOf(HasSubstr("byte 8"), HasSubstr("4294967295")));
  const std::string data = raw<float>({1, 2, 3, 4});
  for (const char* shape : {"(4611686018427387904, 4)",
                            "(1099511627776, 1099511627776)",
                            "(4294967296, 4294967296, 0)",
                            "(9223372036854775807,)",
                            "(9223372036854775808,)",
                            "(99999999999999999999999,)",
                            "(1000000000000,)",
                            "(-4,)",
                            "(-2, -2)",
                            "(5,)",
                            "(3,)",
                            "(0,)",
                            "(4, 0)",
                            "(2.0, 2)",
                            "(4e0,)",
                            "(0x4,)",
                            "((4,),)",
                            "(,)",
                            "4",
                            "[4]",
                            "(4",
                            "()"}) {
    EXPECT_THAT(message(file(header("<f4", shape), data)), StartsWith(path_ + ": byte ")) << shape;
  }
  // No elements at all, yet strides that overflow.
  for (const char* shape : {"(0, 4294967296, 4294967296)", "(4294967296, 4294967296, 0)"}) {
    EXPECT_THAT(message(file(header("<f4", shape), "")), HasSubstr("63 bits")) << shape;
  }
  std::string many = "(";
  for (int i = 0; i < 65; ++i) many += "1, ";
  EXPECT_THAT(message(file(header("<f4", many + ")"), raw<float>({1}))), HasSubstr("at most 64 dimensions"));
}

TEST_F(Npy, what_is_not_a_plain_array_is_refused_with_a_hint) {
  EXPECT_THAT(message(file(header("|O", "(1,)"), "\x80\x04K\x01.")),
              AllOf(HasSubstr("pickled Python objects"), HasSubstr("never loaded"), HasSubstr("'|O'")));
  EXPECT_THAT(message(file("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", "1234")),
              AllOf(HasSubstr("structured type"), HasSubstr("each field")));
  for (const char* descr : {"<U4", "|S4"}) {
    EXPECT_THAT(message(file(header(descr, "(1,)"), "1234")),
                AllOf(HasSubstr("found text"), HasSubstr(descr), HasSubstr("np.unique")));
  }
  for (const char* descr : {"<c8", "<u8", "<M8[s]", "<f16", "<f3", "f4", "<", "", "?f4", "|V4"}) {
    EXPECT_THAT(message(file(header(descr, "(1,)"), "1234")),
                AllOf(HasSubstr("f2 f4 f8"), HasSubstr("astype")))
        << descr;
  }
  EXPECT_THAT(message("PK\x03\x04 and a zip archive"), HasSubstr(".npz"));
  EXPECT_THAT(message(file(header("<f4", "(1,)"), "1234", 4)), AllOf(HasSubstr("byte 6"), HasSubstr("4.0")));
  for (const char* text : {"", "{}", "{'descr': '<f4'}",
                           "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}",
                           "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': 1}",
                           "{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}",
                           "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} + 1",
                           "{'descr': '<f4, 'fortran_order': False, 'shape': (1,)}", "{'descr' '<f4'}",
                           "{descr: '<f4'}", "__import__('os')"}) {
    EXPECT_THAT(message(file(text, "1234")), StartsWith(path_ + ": byte ")) << text;
  }
  // What a file holds is escaped before it reaches a terminal.
  EXPECT_THAT(message(file("{'\x1b[2J': 1}", "")), HasSubstr("\\x1b[2J"));
}

TEST_F(Npy, paths_that_are_no_files_are_refused) {
  EXPECT_THROW(read_npy((folder_ / "missing.npy").string()), std::runtime_error);
  EXPECT_THROW(read_npy(folder_.string()), std::runtime_error);
  EXPECT_THROW(read_npy("/dev/zero"), std::runtime_error);
}

TEST_F(Npy, a_write_that_fails_leaves_the_old_file_and_nothing_beside) {
  write_npy(path_, reference_values());
  EXPECT_THROW(write_npy(path_, Tensor()), std::invalid_argument);
  EXPECT_THROW(write_npy(path_, at::zeros({2}, at::kComplexFloat)), std::invalid_argument);
  EXPECT_THROW(write_npy(path_, at::zeros({2}, at::kBFloat16)), std::invalid_argument);
  EXPECT_TRUE(read_npy(path_).equal(reference_values()));
  EXPECT_THROW(write_npy((folder_ / "none" / "a.npy").string(), reference_values()), std::runtime_error);
  std::filesystem::create_directories(folder_ / "taken" / "full");
  EXPECT_THROW(write_npy((folder_ / "taken").string(), reference_values()),
               std::runtime_error);  // rename fails
  EXPECT_EQ(files(), 2U);
  std::filesystem::remove(folder_ / "taken" / "full");
}

}  // namespace
}  // namespace bilevel
