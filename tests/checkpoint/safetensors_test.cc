// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <random>

namespace tandem::checkpoint {
namespace {

using testing::HasSubstr;

std::string FromHex(std::string_view hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  }
  return bytes;
}

std::string WithHeader(const std::string& header, const std::string& buffer) {
  std::string content(8, '\0');
  for (size_t i = 0; i < 8; ++i) {
    content[i] = static_cast<char>(header.size() >> (8 * i));
  }
  return content + header + buffer;
}

absl::StatusOr<SafetensorsHeader> ReadWhole(const std::string& content) {
  return ReadSafetensorsHeader(content, static_cast<int64_t>(content.size()));
}

std::string Vector() {
  return FromHex("5800000000000000") +
         R"({"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})" + "   " +
         FromHex("0000803f000000c0");
}

TEST(SafetensorsTest, WritesTheReferenceBytes) {
  const auto beginning =
      SafetensorsBeginning({{.name = "w", .dtype = "F32", .shape = {2}}}, {{"format", "pt"}});
  ASSERT_TRUE(beginning.ok());
  EXPECT_EQ(*beginning + FromHex("0000803f000000c0"), Vector());
}

TEST(SafetensorsTest, ReadsTheReferenceBytes) {
  const std::string content = Vector();
  ASSERT_EQ(*SafetensorsHeaderBytes(content.substr(0, 8), static_cast<int64_t>(content.size())), 96);
  const auto file = ReadSafetensorsHeader(content.substr(0, 96), static_cast<int64_t>(content.size()));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->metadata.at("format"), "pt");
  const TensorPlace& tensor = file->tensors.at("w");
  EXPECT_EQ(tensor.dtype, "F32");
  EXPECT_EQ(tensor.shape, std::vector<int64_t>{2});
  EXPECT_EQ(tensor.begin, 96);
  EXPECT_EQ(tensor.end, 104);
}

TEST(SafetensorsTest, WritesScalarsAndEmptyTensors) {
  const auto beginning = SafetensorsBeginning({{.name = "none", .dtype = "I64", .shape = {0, 3}},
                                               {.name = "scalar", .dtype = "F32"},
                                               {.name = "nothing", .dtype = "U8", .shape = {0}}},
                                              {});
  ASSERT_TRUE(beginning.ok());
  const auto file = ReadWhole(*beginning + "1234");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->tensors.size(), 3u);
  EXPECT_EQ(file->tensors.at("scalar").end - file->tensors.at("scalar").begin, 4);
  const auto empty = SafetensorsBeginning({}, {});
  ASSERT_TRUE(empty.ok());
  EXPECT_TRUE(ReadWhole(*empty).ok());
}

TEST(SafetensorsTest, WriterRefusesWhatReadersWould) {
  EXPECT_FALSE(SafetensorsBeginning({{.name = "w", .dtype = "F32"}, {.name = "w", .dtype = "F32"}}, {}).ok());
  EXPECT_FALSE(SafetensorsBeginning({{.name = "w", .dtype = "F33"}}, {}).ok());
  EXPECT_FALSE(SafetensorsBeginning({{.name = "__metadata__", .dtype = "F32"}}, {}).ok());
  EXPECT_FALSE(SafetensorsBeginning({{.name = "\xff", .dtype = "F32"}}, {}).ok());
}

TEST(SafetensorsTest, ReaderNamesWhatIsWrong) {
  const auto reason = [](const std::string& content) {
    return std::string(ReadWhole(content).status().message());
  };
  const std::string eight(8, 'x');
  EXPECT_THAT(reason("short"), HasSubstr("it has only 5 bytes"));
  EXPECT_THAT(reason(FromHex("ffffffffffffff7f") + "{}"),
              HasSubstr("header of 9223372036854775807 bytes does not fit"));
  EXPECT_THAT(reason(WithHeader(" {}", "")), HasSubstr("does not begin with {"));
  EXPECT_THAT(reason(WithHeader("{nonsense", "")), HasSubstr("is not JSON"));
  EXPECT_THAT(reason(WithHeader(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                                R"("w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
                                eight)),
              HasSubstr("the name 'w' appears twice"));
  EXPECT_THAT(reason(WithHeader(R"({"w":{"dtype":"F31","shape":[2],"data_offsets":[0,8]}})", eight)),
              HasSubstr("unknown dtype \"F31\""));
  EXPECT_THAT(reason(WithHeader(R"({"w":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", eight)),
              HasSubstr("needs 12 bytes, its data_offsets are [0,8]"));
  EXPECT_THAT(reason(WithHeader(
                  R"({"w":{"dtype":"F32","shape":[4611686018427387904,2],"data_offsets":[0,8]}})", eight)),
              HasSubstr("impossible shape"));
  EXPECT_THAT(reason(WithHeader(R"({"w":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", eight)),
              HasSubstr("impossible shape"));
  EXPECT_THAT(reason(WithHeader(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", eight)),
              HasSubstr("data_offsets"));
  EXPECT_THAT(reason(WithHeader(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "1234")),
              HasSubstr("'w' ends at 8, the buffer at 4"));
  EXPECT_THAT(reason(WithHeader(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", eight + "9")),
              HasSubstr("1 bytes at its end belong to no tensor"));
  EXPECT_THAT(reason(WithHeader(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", eight)),
              HasSubstr("'w' begins at 4, the one before it ends at 0"));
  EXPECT_THAT(reason(WithHeader(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                                R"("b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                                eight)),
              HasSubstr("'b' begins at 4, the one before it ends at 8"));
  EXPECT_THAT(reason(WithHeader(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}})", eight)),
              HasSubstr("exactly dtype, shape and data_offsets"));
  EXPECT_THAT(reason(WithHeader(R"({"__metadata__":{"a":1}})", "")),
              HasSubstr("metadata 'a' is not a string"));
}

TEST(SafetensorsTest, RandomDamageIsReadOrRefused) {
  const uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 random(seed);
  for (int repeat = 0; repeat < 100'000; ++repeat) {
    std::string content = Vector();
    for (int damage = static_cast<int>(random() % 4); damage >= 0; --damage) {
      switch (random() % 3) {
        case 0:
          content[random() % content.size()] = static_cast<char>(random());
          break;
        case 1:
          content.resize(random() % content.size() + 1);
          break;
        default:
          content.insert(random() % content.size(), 1, static_cast<char>(random()));
      }
    }
    const auto file = ReadWhole(content);
    if (!file.ok()) {
      continue;
    }
    for (const auto& [name, tensor] : file->tensors) {
      ASSERT_LE(0, tensor.begin);
      ASSERT_LE(tensor.begin, tensor.end);
      ASSERT_LE(tensor.end, static_cast<int64_t>(content.size()));
    }
  }
}

}  // namespace
}  // namespace tandem::checkpoint
