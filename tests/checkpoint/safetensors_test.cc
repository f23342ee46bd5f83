#include "checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "checkpoint/checkpoint.h"

namespace tandem::checkpoint {
namespace {

using testing::HasSubstr;

std::string File(const std::string& header, const std::string& data) {
  const uint64_t size = header.size();
  std::string content(8, '\0');
  std::memcpy(content.data(), &size, 8);
  return content + header + data;
}

TEST(SafetensorsTest, WritesTheReferenceBytes) {
  const float values[] = {1, -2};
  const std::string content = WriteSafetensors(
      {{.name = "w", .dtype = "F32", .shape = {2}, .bytes = {reinterpret_cast<const char*>(values), 8}}},
      {{"format", "pt"}});
  // The reference writer orders keys as written, we by name: the same size and data, and the same content
  // when read.
  EXPECT_EQ(content.size(), 8u + 88 + 8);
  EXPECT_EQ(content.substr(0, 8), std::string("\x58\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(content.substr(96), std::string("\0\0\x80\x3f\0\0\0\xc0", 8));
}

TEST(SafetensorsTest, ReadsTheReferenceFile) {
  const std::string content =
      File(R"({"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}   )",
           std::string("\0\0\x80\x3f\0\0\0\xc0", 8));
  const Safetensors read = ReadSafetensors("f", content);
  ASSERT_EQ(read.tensors.size(), 1u);
  EXPECT_EQ(read.tensors[0].name, "w");
  EXPECT_EQ(read.tensors[0].shape, (std::vector<int64_t>{2}));
  EXPECT_EQ(read.metadata.at("format"), "pt");
  float values[2];
  std::memcpy(values, read.tensors[0].bytes.data(), 8);
  EXPECT_EQ(values[1], -2);
}

TEST(SafetensorsTest, ScalarsAndEmptyTensorsSurvive) {
  const std::string content = WriteSafetensors({{"e", "F64", {0, 3}, {}}, {"s", "I64", {}, "12345678"}}, {});
  const Safetensors read = ReadSafetensors("f", content);
  ASSERT_EQ(read.tensors.size(), 2u);
  EXPECT_EQ(read.tensors[0].bytes.size(), 0u);
  EXPECT_EQ(read.tensors[1].bytes, "12345678");
}

TEST(SafetensorsTest, RefusesWhatTheFormatForbids) {
  const struct {
    std::string content, reason;
  } cases[] = {
      {"abc", "shorter than a header"},
      {std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8), "does not fit"},
      {File("[]", ""), "not a JSON object"},
      {File("{", ""), "parse error"},
      {File(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "1234567"), "outside"},
      {File(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "123456789"), "behind the last"},
      {File(R"({"w":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", "12345678"), "does not fill"},
      {File(R"({"w":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]}})", "12345678"),
       "does not fill"},
      {File(R"({"w":{"dtype":"F31","shape":[2],"data_offsets":[0,8]}})", "12345678"), "unknown dtype"},
      {File(
           R"({"w":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"v":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
           "12345678"),
       "overlap"},
      {File(R"({"w":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})", "12345678"), "hole"},
      {File(
           R"({"w":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"w":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
           ""),
       "twice"},
  };
  for (const auto& [content, reason] : cases) {
    try {
      ReadSafetensors("some/file", content);
      ADD_FAILURE() << "accepted: " << reason;
    } catch (const CheckpointError& error) {
      EXPECT_THAT(error.what(), HasSubstr("some/file"));
      EXPECT_THAT(error.what(), HasSubstr(reason));
    }
  }
}

}  // namespace
}  // namespace tandem::checkpoint
