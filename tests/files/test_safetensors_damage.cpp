// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include <sys/stat.h>

#include "files/support.hpp"
#include "pleat/io/safetensors.hpp"

namespace pleat::io {
namespace {

using test::message_of;
using testing::HasSubstr;

std::string file_with(const std::string& header, std::size_t data_bytes) {
  std::string bytes(8, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + std::string(data_bytes, 'x');
}

std::string entry(const std::string& name, const std::string& type,
                  const std::string& shape, const std::string& offsets) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":{}}})", name, type,
                     shape, offsets);
}

struct BadFile {
  const char* what;
  std::string bytes;
  const char* message;
};

std::vector<BadFile> bad_files() {
  const std::string good = entry("a", "F32", "[2]", "[0,8]");
  const std::string deep = std::string(50000, '[') + std::string(50000, ']');
  return {
      {"empty", "", "too few"},
      {"cut length", "abc", "too few"},
      {"header beyond the end", file_with("{" + good + "}", 8).substr(0, 20),
       "truncated"},
      {"huge header", std::string(16, '\xff'), "truncated"},
      {"no JSON", file_with("hello world", 0), "not valid JSON"},
      {"no object", file_with("[1,2]", 0), "expected a JSON object"},
      {"data cut", file_with("{" + good + "}", 7), "truncated"},
      {"data left over", file_with("{" + good + "}", 9), "after its last tensor"},
      {"gap", file_with("{" + entry("a", "F32", "[2]", "[4,12]") + "}", 12),
       "expected 0"},
      {"overlap",
       file_with("{" + good + "," + entry("b", "F32", "[2]", "[4,12]") + "}", 12),
       "expected 8"},
      {"twice", file_with("{" + good + "," + good + "}", 8), "occurs twice"},
      {"size", file_with("{" + entry("a", "F32", "[3]", "[0,8]") + "}", 8),
       "needs 12 bytes"},
      {"integers", file_with("{" + entry("a", "I64", "[1]", "[0,8]") + "}", 8), "'I64'"},
      {"negative", file_with("{" + entry("a", "F32", "[-2]", "[0,8]") + "}", 8),
       "non-negative"},
      {"fraction", file_with("{" + entry("a", "F32", "[2.0]", "[0,8]") + "}", 8),
       "integer"},
      {"overflow",
       file_with(
           "{" + entry("a", "F32", "[4294967296,4294967296,4294967296]", "[0,0]") + "}",
           0),
       "too large"},
      {"reversed", file_with("{" + entry("a", "F32", "[2]", "[8,0]") + "}", 8),
       "needs 8 bytes"},
      {"no offsets", file_with(R"({"a":{"dtype":"F32","shape":[2]}})", 8),
       "no 'data_offsets'"},
      {"one offset", file_with("{" + entry("a", "F32", "[2]", "[0]") + "}", 8),
       "not a pair"},
      {"deep", file_with("{\"a\":" + deep + "}", 0), "nested deeper"},
      {"metadata", file_with(R"({"__metadata__":{"x":1}})", 0), "not a text"},
      {"entry is a number", file_with(R"({"a":3})", 0), "no 'dtype'"},
      {"bad UTF-8", file_with("{\"\xff\":1}", 0), "not valid JSON"},
  };
}

TEST(SafetensorsDamage, EachFaultHasItsMessage) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "x.safetensors";
  for (const BadFile& bad : bad_files()) {
    SCOPED_TRACE(bad.what);
    test::write_file(path, bad.bytes);
    const std::string text = message_of<InputError>([&] { SafetensorsReader{path}; });
    EXPECT_THAT(text, HasSubstr(bad.message));
    EXPECT_THAT(text, HasSubstr(path));
    EXPECT_THAT(text, HasSubstr("PL04"));
  }
}

TEST(SafetensorsDamage, IndexAndShardsMustAgree) {
  const test::TemporaryFolder folder;
  test::write_file(folder / "one.safetensors",
                   file_with("{" + entry("a", "F32", "[2]", "[0,8]") + "}", 8));
  const auto with_index = [&](const std::string& map) {
    test::write_file(folder / "model.safetensors.index.json",
                     R"({"weight_map":)" + map + "}");
    return message_of<InputError>([&] { SafetensorsReader{folder.path()}; });
  };
  EXPECT_THAT(with_index(R"({"a":"one.safetensors","b":"one.safetensors"})"),
              HasSubstr("says that tensor 'b' is in 'one.safetensors'"));
  EXPECT_THAT(
      with_index(R"({"a":"two.safetensors"})"),
      HasSubstr("missing beside it; 1 of 1:\n  'two.safetensors' with 1 tensor: 'a'"));
  EXPECT_THAT(with_index(R"({"a":"../one.safetensors"})"), HasSubstr("plain file name"));
  EXPECT_THAT(with_index(R"({})"), HasSubstr("'weight_map' is empty"));
  test::write_file(folder / "two.safetensors",
                   file_with("{" + entry("b", "F32", "[2]", "[0,8]") + "," +
                                 entry("c", "F32", "[1]", "[8,12]") + "}",
                             12));
  EXPECT_THAT(with_index(R"({"a":"one.safetensors","b":"two.safetensors"})"),
              HasSubstr("does not list tensor 'c'"));
}

TEST(SafetensorsDamage, MissingFilesAreNamed) {
  const test::TemporaryFolder folder;
  EXPECT_THAT(message_of<InputError>([&] { SafetensorsReader{folder.path()}; }),
              HasSubstr("model.safetensors.index.json"));
  EXPECT_THAT(message_of<InputError>([&] { SafetensorsReader{folder / "none"}; }),
              HasSubstr("No such file"));
  // A pipe that nobody writes to must not be waited for.
  ASSERT_EQ(mkfifo((folder / "model.safetensors").c_str(), 0600), 0);
  EXPECT_THAT(message_of<InputError>([&] { SafetensorsReader{folder.path()}; }),
              HasSubstr("is not a file"));
}

/// A header with random changes: bytes replaced, removed, repeated, numbers made huge.
std::string mutate(std::string bytes, test::Dice& dice) {
  static const std::vector<std::string> kPieces{"\"",
                                                "{",
                                                "}",
                                                "[",
                                                "]",
                                                ",",
                                                ":",
                                                "-1",
                                                "1e400",
                                                "18446744073709551616",
                                                "9223372036854775807",
                                                "null",
                                                "true",
                                                "\\u0000",
                                                "\"F16\"",
                                                "\"shape\"",
                                                "0"};
  const std::uint64_t changes = 1 + dice.below(4);
  for (std::uint64_t i = 0; i < changes && !bytes.empty(); ++i) {
    const std::size_t place = dice.below(bytes.size());
    switch (dice.below(5)) {
      case 0:
        bytes[place] = static_cast<char>(dice.below(256));
        break;
      case 1:
        bytes.erase(place, 1 + dice.below(12));
        break;
      case 2:
        bytes.insert(place, kPieces[dice.below(kPieces.size())]);
        break;
      case 3:
        bytes.insert(place, bytes.substr(place, 1 + dice.below(40)));
        break;
      default:
        bytes.resize(place);
        break;
    }
  }
  return bytes;
}

// Whatever the file says, the reader reports or reads what lies within the file.
TEST(SafetensorsDamage, Fuzz) {
  constexpr int kInputs = 6000;
  const test::TemporaryFolder folder;
  const std::string path = folder / "x.safetensors";
  const std::string header = "{\"__metadata__\":{\"format\":\"pt\"}," +
                             entry("a", "F32", "[2]", "[0,8]") + "," +
                             entry("b", "BF16", "[2,3]", "[8,20]") + "," +
                             entry("c", "F64", "[]", "[20,28]") + "}";
  test::Dice dice(99);
  int refused = 0;
  for (int i = 0; i < kInputs; ++i) {
    const bool inside = dice.below(4) != 0;  // keeps the announced length true
    const std::string bytes = inside ? file_with(mutate(header, dice), 28)
                                     : mutate(file_with(header, 28), dice);
    test::write_file(path, bytes);
    try {
      const SafetensorsReader reader(path);
      for (const SafetensorsEntry& found : reader.entries()) reader.read_raw(found);
    } catch (const InputError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, kInputs / 2);
  EXPECT_LT(refused, kInputs);
}

}  // namespace
}  // namespace pleat::io
