// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "jobspec/jobspec.h"
#include "jobspec/schema.h"
#include "tests/jobspec/bad_spec.h"
#include "tests/platform/irregular_files.h"
#include "tests/platform/temporary_folder.h"

namespace tandem::jobspec {
namespace {

using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::util::MessageDifferencer;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

v1::JobSpec Read(const std::string& text) {
  const ReadResult read = ReadText(text, "");
  EXPECT_EQ(ToText(read.violations), "") << text;
  return read.spec;
}

// The message as a flow map, which is JSON, too.
std::string ToJson(const Message& message) {
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  std::string text = "{";
  for (const FieldDescriptor* field : fields) {
    const bool quoted = field->cpp_type() == FieldDescriptor::CPPTYPE_STRING ||
                        field->cpp_type() == FieldDescriptor::CPPTYPE_ENUM;
    if (field->is_repeated()) {
      std::string list;
      for (int i = 0; i < message.GetReflection()->FieldSize(message, field); ++i) {
        absl::StrAppend(&list, i > 0 ? ", " : "",
                        ToJson(message.GetReflection()->GetRepeatedMessage(message, field, i)));
      }
      absl::StrAppend(&text, text.size() > 1 ? ", " : "", "\"", field->name(), "\": [", list, "]");
      continue;
    }
    const std::string value = field->message_type() != nullptr
                                  ? ToJson(message.GetReflection()->GetMessage(message, field))
                                  : ValueText({&message, field});
    absl::StrAppend(&text, text.size() > 1 ? ", " : "", "\"", field->name(), "\": ", quoted ? "\"" : "",
                    value, quoted ? "\"" : "");
  }
  return text + "}";
}

TEST(ReadTest, JsonAndYamlGiveTheSameMessage) {
  const v1::JobSpec yaml = Read(
      "# the job\n"
      "name: a-job\n"
      "model:\n"
      "  preset: llama-tiny\n"
      "  tie_word_embeddings: true\n"
      "training: {steps: 10, seed: 18446744073709551615, clip_grad_norm: .5,\n"
      "           optimizer: {learning_rate: 1e-3, name: adamw}}\n"
      "parallelism: {fsdp: {strategy: 'zero3'}}\n");
  const v1::JobSpec json = Read(
      "{\n\t\"name\": \"a\\u002djob\",\n"
      "\t\"model\": {\"preset\":\"llama-tiny\", \"tie_word_embeddings\": true},\n"
      "\t\"training\": {\"steps\": 10, \"seed\": 18446744073709551615, \"clip_grad_norm\": 0.5,\n"
      "\t\t\"optimizer\": {\"learning_rate\": 0.001, \"name\": \"adamw\"}},\n"
      "\t\"parallelism\": {\"fsdp\": {\"strategy\": \"zero3\"}}\n}\n");
  EXPECT_TRUE(MessageDifferencer::Equals(yaml, json)) << yaml.DebugString() << json.DebugString();
  EXPECT_EQ(yaml.training().seed(), UINT64_MAX);
  EXPECT_EQ(yaml.parallelism().fsdp().strategy(), v1::STRATEGY_ZERO3);
}

TEST(ReadTest, EscapesInSingleQuotesAreText) {
  EXPECT_EQ(Read(R"(data: {train: '/\ud83d\ude00'})").data().train(), R"(/\ud83d\ude00)");
}

TEST(ReadTest, AResolvedSpecReadsBackFromItsText) {
  const v1::JobSpec resolved = Resolve(Read(kGoodSpec));
  const v1::JobSpec again = Read(ToJson(resolved));
  EXPECT_TRUE(MessageDifferencer::Equals(resolved, again)) << ToJson(resolved);
  EXPECT_EQ(Digest(again), Digest(resolved));
  EXPECT_EQ(ToText(Validate(again)), "");
}

constexpr char kTwoSets[] =
    "data:\n"
    "  train: /data\n"
    "  validation_sets:\n"
    "    - path: /en\n"
    "    - {path: /de/, name: deutsch}\n";

TEST(ReadTest, AListOfBlocksIsARepeatedMessage) {
  const v1::JobSpec spec = Read(kTwoSets);
  ASSERT_EQ(spec.data().validation_sets_size(), 2);
  EXPECT_EQ(spec.data().validation_sets(0).path(), "/en");
  EXPECT_FALSE(spec.data().validation_sets(0).has_name());
  EXPECT_EQ(spec.data().validation_sets(1).name(), "deutsch");
  EXPECT_EQ(ValueText(FindValue(spec, "data.validation_sets[1].name")), "deutsch");
  EXPECT_EQ(FindValue(spec, "data.validation_sets[2].name").message, nullptr);
  EXPECT_EQ(FindValue(spec, "data.validation_sets.name").message, nullptr);
  EXPECT_EQ(ValueText(FindValue(spec, "data.validation_sets")), "[...]");
}

TEST(ReadTest, KeysOfEntriesHaveTheirPlaces) {
  const ReadResult read = ReadText(kTwoSets, "f");
  EXPECT_THAT(read.positions,
              testing::Contains(std::pair(std::string("data.validation_sets[1]"), std::pair(5, 7))));
  EXPECT_THAT(read.positions,
              testing::Contains(std::pair(std::string("data.validation_sets[1].name"), std::pair(5, 20))));
}

TEST(ReadTest, AListReadsBackFromItsText) {
  const v1::JobSpec resolved = Resolve(Read(std::string(kTwoSets)));
  EXPECT_EQ(resolved.data().validation_sets(1).name(), "deutsch");
  EXPECT_EQ(resolved.data().validation_sets(0).name(), "en");
  EXPECT_FALSE(resolved.data().has_validation_fraction());
  EXPECT_TRUE(MessageDifferencer::Equals(resolved, Read(ToJson(resolved)))) << ToJson(resolved);
}

TEST(ReadTest, AListHasAtMostAThousandEntries) {
  std::string list;
  for (int i = 0; i < 1000; ++i) {
    absl::StrAppend(&list, "{path: /", i, "}, ");
  }
  EXPECT_EQ(Read(absl::StrCat("data: {validation_sets: [", list, "]}")).data().validation_sets_size(), 1000);
  const ReadResult read = ReadText(absl::StrCat("data: {validation_sets: [", list, "{path: /x}]}"), "");
  ASSERT_EQ(read.violations.size(), 1u);
  EXPECT_THAT(ToText(read.violations[0]), HasSubstr("data.validation_sets: a list of 1001 entries is not "
                                                    "allowed; allowed: a list of 1 to 1000 blocks"));
}

TEST(ReadTest, AbsentIsNotZero) {
  const v1::JobSpec spec = Read("training: {clip_grad_norm: 0}\nreport: {}\n");
  EXPECT_TRUE(spec.training().has_clip_grad_norm());
  EXPECT_FALSE(spec.training().has_steps());
  EXPECT_TRUE(spec.has_report());
  EXPECT_FALSE(spec.has_model());
}

TEST(ReadTest, NumbersInTheFormsOfYamlAndJson) {
  for (const auto& [text, value] : std::vector<std::pair<std::string, double>>{{"1", 1},
                                                                               {"+1.5", 1.5},
                                                                               {".5", 0.5},
                                                                               {"5.", 5},
                                                                               {"1E2", 100},
                                                                               {"1e+2", 100},
                                                                               {"0", 0},
                                                                               {"-0.25", -0.25},
                                                                               {"0.1", 0.1}}) {
    EXPECT_EQ(Read("training: {clip_grad_norm: " + text + "}").training().clip_grad_norm(), value) << text;
  }
  EXPECT_EQ(Read("training: {steps: +5}").training().steps(), 5);
  EXPECT_EQ(Read("training: {steps: -9223372036854775808}").training().steps(), INT64_MIN);
}

TEST(ReadTest, SizesHaveUnits) {
  for (const auto& [text, bytes] : std::vector<std::pair<std::string, int64_t>>{{"5", 5},
                                                                                {"2KiB", 2048},
                                                                                {"64MiB", 64 << 20},
                                                                                {"3kB", 3000},
                                                                                {"1TiB", int64_t{1} << 40},
                                                                                {"2GB", 2'000'000'000}}) {
    EXPECT_EQ(Read("resources: {memory_bytes: " + text + "}").resources().memory_bytes(), bytes);
  }
  for (const std::string text : {"64M", "1.5GiB", "MiB", "-1KiB", "8388608TiB", "1 GiB"}) {
    EXPECT_EQ(ReadText("resources: {memory_bytes: " + text + "}", "").violations.size(), 1) << text;
  }
}

TEST(ReadTest, TextIsKeptAsWritten) {
  EXPECT_EQ(Read("data: {train: '010'}").data().train(), "010");
  EXPECT_EQ(Read("data: {train: no}").data().train(), "no");
  EXPECT_EQ(Read("data: {train: /a b/*.txt}").data().train(), "/a b/*.txt");
  EXPECT_EQ(Read("data: {train: \"/\xC3\xA9\"}").data().train(), "/\xC3\xA9");
  EXPECT_EQ(Read("\xEF\xBB\xBF"
                 "name: a")
                .name(),
            "a");
}

TEST(ReadTest, KnowsWhereEveryKeyStood) {
  const ReadResult read = ReadText("model:\n  preset: llama-tiny\ntraining: {steps: 3,\n   seed: 1}\n", "f");
  EXPECT_THAT(read.positions,
              ::testing::ElementsAre(std::pair(std::string("model"), std::pair(1, 1)),
                                     std::pair(std::string("model.preset"), std::pair(2, 3)),
                                     std::pair(std::string("training"), std::pair(3, 1)),
                                     std::pair(std::string("training.steps"), std::pair(3, 12)),
                                     std::pair(std::string("training.seed"), std::pair(4, 4))));
}

TEST(ReadTest, ViolationsComeInFileOrder) {
  ReadResult read = ReadText(
      "name: My Job\n"
      "training:\n"
      "  stpes: 10\n"
      "  micro_batch_size: 4\n"
      "  global_batch_size: 10\n"
      "  sequence_length: 010\n"
      "  optimizer: {learning_rate: 0, beta1: yes}\n"
      "  micro_batch_size: 5\n"
      "parallelism: {tensor: 2, ranks: 2}\n"
      "model: {preset: llama-tinny}\n"
      "precision: {compute: fp8}\n",
      "job.yaml");
  std::string lines;
  for (const v1::Violation& violation : CheckAll(read, [](const v1::JobSpec&) { return false; }).violations) {
    absl::StrAppend(&lines, violation.line(), " ", violation.path(), "\n");
  }
  EXPECT_EQ(lines,
            "1 name\n"
            "3 training.stpes\n"
            "6 training.sequence_length\n"
            "7 training.optimizer.learning_rate\n"
            "7 training.optimizer.beta1\n"
            "8 training.micro_batch_size\n"
            "9 parallelism.tensor\n"
            "10 model.preset\n"
            "11 precision.compute\n"
            "0 data.train\n");
}

TEST(ReadTest, NestingHasALimit) {
  for (const std::string& text :
       {std::string(40, '['), std::string(1 << 19, '['), std::string(1 << 19, '{')}) {
    const ReadResult read = ReadText(text, "");
    ASSERT_EQ(read.violations.size(), 1);
    EXPECT_THAT(ToText(read.violations), HasSubstr("more than 32 levels of nesting"));
  }
  std::string nested;
  for (int i = 0; i < 1000; ++i) {
    nested += std::string(i, ' ') + "a:\n";
  }
  EXPECT_THAT(ToText(ReadText(nested, "").violations), HasSubstr("more than 32 levels of nesting"));
}

TEST(ReadTest, TextHasALimit) {
  EXPECT_EQ(ToText(ReadText(std::string((1 << 20) + 1, 'a'), "f").violations),
            "f: the text has more than 1048576 bytes; a job spec is a few lines: is this the right file?\n");
  EXPECT_EQ(ToText(ReadText("name: a\n" + std::string((1 << 20) - 8, '#'), "f").violations), "");
}

TEST(ReadTest, ViolationsHaveALimit) {
  std::string text;
  for (int i = 0; i < 5000; ++i) {
    absl::StrAppend(&text, "zzz", i, ": 1\n");
  }
  const ReadResult read = ReadText(text, "f");
  ASSERT_EQ(read.violations.size(), 1001);
  EXPECT_EQ(ToText(read.violations.back()), "f:1001:1: more than 1000 things are wrong; mend these first");
}

TEST(ReadTest, BytesThatAreNoTextAreNamed) {
  EXPECT_EQ(ToText(ReadText("name: a\xFF"
                            "b",
                            "f")
                       .violations),
            "f:1:8: the byte 0xff, which is not UTF-8; save the file as UTF-8\n");
  EXPECT_EQ(ToText(ReadText(std::string("a: b\nname: a\0b", 14), "f").violations),
            "f:2:8: the control character 0x00; remove it\n");
  for (const char* bad : {"\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xC3", "\x80"}) {
    EXPECT_THAT(ToText(ReadText(std::string("name: ") + bad, "f").violations), HasSubstr("not UTF-8"));
  }
}

TEST(ReadTest, LongAndOddValuesAreCutAndEscaped) {
  ReadResult read = ReadText(
      "name: \"" + std::string(500, 'n') + "\"\n? \"\\e[31m" + std::string(500, 'k') + "\"\n: 1\n", "");
  for (const v1::Violation& violation : CheckAll(read, [](const v1::JobSpec&) { return false; }).violations) {
    const std::string text = ToText(violation);
    EXPECT_LT(text.size(), 600);
    EXPECT_EQ(text.find('\x1b'), std::string::npos);
  }
  EXPECT_THAT(ToText(read.violations), HasSubstr("2:3: \\x1b[31mkkk"));
}

TEST(ReadTest, ReadsAFileOrSaysWhyNot) {
  platform::TemporaryFolder folder;
  folder.Write("job.yaml", kGoodSpec);
  const ReadResult good = ReadFile(folder.path() + "/job.yaml");
  EXPECT_THAT(good.violations, IsEmpty());
  EXPECT_EQ(good.spec.training().steps(), 10);
  EXPECT_EQ(ToText(ReadFile("/no/such.yaml").violations),
            "/no/such.yaml: the file cannot be read: No such file or directory; name a file with a job spec, "
            "or - for "
            "standard input\n");
  folder.Write("long.yaml", std::string(2 << 20, '#'));
  EXPECT_THAT(ToText(ReadFile(folder.path() + "/long.yaml").violations),
              HasSubstr("more than 1048576 bytes"));
}

// Reads a FIFO to which another thread writes the text, which is more than a pipe holds.
ReadResult ReadFromPipe(const std::string& text) {
  const platform::TemporaryFolder folder;
  const std::string path = folder.path() + "/pipe";
  EXPECT_EQ(mkfifo(path.c_str(), 0600), 0);
  const int other_reader = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);  // so that no open waits
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  std::thread writer([&text, fd] {
    size_t written = 0;
    while (written < text.size()) {
      const ssize_t count = write(fd, text.data() + written, text.size() - written);
      if (count < 0) {
        EXPECT_EQ(errno, EPIPE);  // the reader has gone
        break;
      }
      written += static_cast<size_t>(count);
    }
    close(fd);
  });
  ReadResult read = ReadFile(path);
  close(other_reader);
  writer.join();
  return read;
}

TEST(ReadTest, PipeIsReadAsFarAsAFile) {
  std::signal(SIGPIPE, SIG_IGN);
  const ReadResult good = ReadFromPipe(kGoodSpec + std::string(200'000, '#'));  // more than a pipe holds
  EXPECT_EQ(ToText(good.violations), "");
  EXPECT_EQ(good.spec.training().steps(), 10);
  EXPECT_THAT(ToText(ReadFromPipe(std::string(2 << 20, '#')).violations),
              HasSubstr("more than 1048576 bytes"));
}

TEST(ReadTest, IrregularFileIsNamed) {
  for (const std::string kind : platform::kIrregularKinds) {
    if (kind == "a FIFO") {
      continue;
    }
    const platform::TemporaryFolder folder;
    const std::string path = folder.path() + "/job.yaml";
    platform::PutIrregularFile(kind, path);
    EXPECT_EQ(ToText(ReadFile(path).violations),
              path + ": the file cannot be read: it is " + kind +
                  ", not a regular file; name a file with a job spec, or - for standard input\n");
  }
}

TEST(ReadTest, TheExamplesAreGood) {
  for (const char* name :
       {"headers.yaml", "headers-bf16.yaml", "headers-moe.yaml", "headers-hybrid.yaml", "llama-3-8b.yaml"}) {
    ReadResult read = ReadFile(std::string(TANDEM_EXAMPLES) + "/" + name);
    EXPECT_EQ(ToText(CheckAll(read, [](const v1::JobSpec&) { return false; }).violations), "") << name;
  }
}

}  // namespace
}  // namespace tandem::jobspec
