// SPDX-License-Identifier: Apache-2.0
#include "data/token_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <iostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "data/indexed_file.h"
#include "data/text.h"
#include "platform/clock.h"
#include "tests/data/data_error.h"
#include "tests/data/prepared_folder.h"
#include "tests/platform/temporary_folder.h"

namespace tandem::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<int64_t> kTokens = {1, 2, 3, 10, 5, 6, 10, 8, 9, 7, 11, 12};

template <typename Number>
std::string Numbers(const std::vector<int64_t>& tokens) {
  std::string bytes;
  for (const int64_t token : tokens) {
    Append<Number>(bytes, token);
  }
  return bytes;
}

std::string Npy(const std::string& descr, const std::string& shape, const std::string& numbers) {
  std::string header =
      absl::StrCat("{'descr': '", descr, "', 'fortran_order': False, 'shape': ", shape, ", }");
  header += std::string((64 - (header.size() + 11) % 64) % 64, ' ') + "\n";
  std::string bytes("\x93NUMPY\x01\x00", 8);
  Append<uint16_t>(bytes, static_cast<int64_t>(header.size()));
  return bytes + header + numbers;
}

std::string Llmc(int32_t magic, int32_t version, int64_t tokens, const std::string& numbers) {
  std::string bytes;
  for (const int64_t number : {int64_t{magic}, int64_t{version}, tokens}) {
    Append<int32_t>(bytes, number);
  }
  return bytes + std::string(1024 - bytes.size(), '\0') + numbers;
}

class TokenFilesTest : public testing::Test {
 protected:
  SplitText Open(const TextPath& path, double fraction = 0,
                 std::optional<Documents> documents = Documents{}) const {
    return OpenText(
        {.train = {path}, .validation_fraction = fraction, .documents = documents, .sequence_length = 3},
        platform::SteadyClock());
  }

  static std::vector<int64_t> All(const TokenSource& source) {
    std::vector<int64_t> tokens(source.num_tokens());
    source.Read(0, source.num_tokens(), tokens.data());
    return tokens;
  }

  // What OpenText refuses.
  static std::string Refusal(TextOptions options) {
    options.sequence_length = 3;
    return ErrorOf([&] { OpenText(options, platform::SteadyClock()); });
  }

  std::string Error(const std::string& path, TextFormat format = TextFormat::kAuto) const {
    const absl::StatusOr<TokenText> read = ReadTokenText(path, FormatOf(path, format), TokenType::kU16);
    return read.ok() ? "" : std::string(read.status().message());
  }

  const platform::TemporaryFolder folder_;
  const std::string& path_ = folder_.path();
};

TEST_F(TokenFilesTest, APairIsReadLikeAPreparedFolder) {
  const std::vector<Document> documents = {{1, 2, 3, 4}, {}, {5, 6, 7}, {8, 9, 10, 11, 12}};
  for (const bool u16 : {true, false}) {
    folder_.Write("others/text.bin", BinOf(documents, u16));
    folder_.Write("others/text.idx", IdxOf(documents, u16));
    const std::string prefix = path_ + "/others/text";
    for (const std::string& path : {prefix, prefix + ".bin", prefix + ".idx", path_ + "/others"}) {
      SCOPED_TRACE(path);
      const SplitText text = Open({"data.train", path}, 0.4);
      EXPECT_THAT(All(*text.train[0]), ElementsAre(1, 2, 3, 4, 5, 6, 7));
      EXPECT_THAT(text.train[0]->DocumentStarts(0, 7), ElementsAre(0, 4));
      EXPECT_EQ(text.validation[0]->num_tokens(), 5);
      EXPECT_EQ(text.train[0]->Where(5), (Place{prefix + ".bin", u16 ? 10 : 20}));
    }
    EXPECT_THAT(PathsReadFor(prefix), ElementsAre(prefix + ".bin", prefix + ".idx"));
  }
}

TEST_F(TokenFilesTest, GapsBetweenSequencesAreRefused) {
  const std::vector<Document> documents = {{1, 2}, {3, 4}, {5, 6}, {7, 8}};
  const TextPath pair{"data.train", path_ + "/text"};
  folder_.Write("text.bin", BinOf(documents, true));
  const std::string good = IdxOf(documents, true);
  const IndexHeader header = ParseIndexHeader(good.substr(0, kIndexHeaderBytes), good.size()).value();
  const auto error = [&](const std::string& index, std::optional<Documents> of) {
    folder_.Write("text.idx", index);
    return ErrorOf([&] { Open(pair, 0, of); });
  };
  EXPECT_EQ(error(good, Documents{}), "no error");
  std::string pointer = good;
  pointer[header.PointerAt(2)] = 6;
  EXPECT_THAT(error(pointer, Documents{}),
              HasSubstr("text.idx says that sequence 2 has 2 tokens and begins at byte 6, and the one before "
                        "it ends at 8"));
  EXPECT_EQ(error(pointer, std::nullopt), "no error") << "a stream has no documents";
  std::string length = good;
  length[header.LengthAt(0)] = 1;
  EXPECT_THAT(error(length, Documents{}), HasSubstr("sequence 1 has 2 tokens and begins at byte 4"));
}

TEST_F(TokenFilesTest, FileOfTwoTextsIsRefused) {
  const auto n = static_cast<int64_t>(kTokens.size());
  const std::string npy = Npy("<u2", absl::StrCat("(", n, ",)"), Numbers<uint16_t>(kTokens));
  const std::string file = folder_.Write("both/a.npy", npy);
  folder_.Write("both/b.npy", npy);
  const auto error = [&](const std::string& second, double fraction) {
    return Refusal({.train = {{"data.sources[0].path", path_ + "/both"}, {"data.sources[1].path", second}},
                    .validation_fraction = fraction});
  };
  EXPECT_THAT(error(file, 0.3), HasSubstr("data.sources[1].path: " + file +
                                          " is also a file of data.sources[0].path, and what is held out"));
  EXPECT_EQ(error(file, 0), "no error") << "nothing is held out";
  EXPECT_EQ(error(path_ + "/both", 0.3), "no error") << "the same is held out of both";
}

TEST_F(TokenFilesTest, FilesThatSayTheirTypeAreRead) {
  const auto n = static_cast<int64_t>(kTokens.size());
  const std::string shape = absl::StrCat("(", n, ",)");
  for (const auto& [name, content, first_byte] : std::vector<std::tuple<std::string, std::string, int64_t>>{
           {"u1.npy", Npy("|u1", shape, Numbers<uint8_t>(kTokens)), 128},
           {"u2.npy", Npy("<u2", shape, Numbers<uint16_t>(kTokens)), 128},
           {"i4.npy", Npy("<i4", "(3, 4)", Numbers<int32_t>(kTokens)), 128},
           {"u4.npy", Npy("<u4", shape, Numbers<uint32_t>(kTokens)), 128},
           {"i8.npy", Npy("<i8", shape, Numbers<int64_t>(kTokens)), 128},
           {"gpt2.bin", Llmc(20240520, 1, n, Numbers<uint16_t>(kTokens)), 1024},
           {"llama.bin", Llmc(20240801, 7, n, Numbers<uint32_t>(kTokens)), 1024}}) {
    SCOPED_TRACE(name);
    const std::string path = folder_.Write(name, content);
    const SplitText text = Open({"data.train", path}, 0, Documents{.end_of_document = 10});
    EXPECT_EQ(All(*text.train[0]), kTokens);
    EXPECT_THAT(text.train[0]->DocumentStarts(0, n), ElementsAre(0, 4, 7));
    EXPECT_THAT(text.train[0]->DocumentStarts(4, 4), ElementsAre(4, 7));
    EXPECT_THAT(text.train[0]->DocumentStarts(5, 2), ElementsAre());
    EXPECT_EQ(text.train[0]->Where(0).byte, first_byte);
    EXPECT_THAT(All(*Open({"data.train", path}, 0.45, Documents{.end_of_document = 10}).validation[0]),
                ElementsAre(8, 9, 7, 11, 12));
  }
}

TEST_F(TokenFilesTest, FlatNumbersHaveTheJobsType) {
  const std::string path = folder_.Write("numbers", Numbers<uint16_t>(kTokens));
  EXPECT_EQ(All(*Open({"data.train", path, TextFormat::kFlat, TokenType::kU16}).train[0]), kTokens);
  const std::string wide = folder_.Write("wide", Numbers<uint32_t>(kTokens));
  const SplitText text = Open({"data.train", wide, TextFormat::kFlat, TokenType::kU32}, 0.25);
  EXPECT_EQ(All(*text.train[0]).size(), 9u);
  EXPECT_THAT(All(*text.validation[0]), ElementsAre(7, 11, 12)) << "the end, as of a file of text";
  EXPECT_THAT(text.validation[0]->DocumentStarts(0, 3), ElementsAre(0));
}

TEST_F(TokenFilesTest, FilesThatAreNoFlatNumbersAreRefused) {
  const std::string numbers = Numbers<uint16_t>(kTokens);
  const auto n = static_cast<int64_t>(kTokens.size());
  const std::string shape = absl::StrCat("(", n, ",)");
  for (const auto& [name, content, kind] : std::vector<std::tuple<std::string, std::string, std::string>>{
           {"a.idx", numbers, "a file named *.idx"},
           {"a.json", numbers, "a file named *.json"},
           {"a.md", numbers, "a file named *.md"},
           {"a.txt", numbers, "a file named *.txt"},
           {"index", IdxOf({{1, 2}}, true), "an index of tokens"},
           {"numpy", Npy("<u2", shape, numbers), "a numpy file"},
           {"llmc", Llmc(20240520, 1, n, numbers), "a file of llm.c"},
           {"gzip", "\x1f\x8b\x08\x01more", "a gzip file"},
           {"zstd", "\x28\xb5\x2f\xfdmore", "a zstd file"},
           {"parquet", "PAR1more", "a Parquet file"},
           {"weights", std::string("\x10\0\0\0\0\0\0\0{\"weight\":", 18), "a safetensors file"}}) {
    SCOPED_TRACE(name);
    folder_.Write("flat-" + name + "/0", numbers);
    const std::string path = folder_.Write("flat-" + name + "/" + name, content);
    EXPECT_THAT(Error(path_ + "/flat-" + name, TextFormat::kFlat), HasSubstr(path + " is " + kind + ", and"));
  }
  const std::string chance = folder_.Write("chance", Numbers<uint16_t>({0x8b1f, 5, 6, 7}));
  EXPECT_EQ(Error(chance, TextFormat::kFlat), "") << "two bytes of gzip's are a token";
}

TEST_F(TokenFilesTest, FolderFilesFollowByPath) {
  folder_.Write("set/b.npy", Npy("<u2", "(2,)", Numbers<uint16_t>({3, 4})));
  folder_.Write("set/a.npy", Npy("|u1", "(2,)", Numbers<uint8_t>({1, 2})));
  folder_.Write("set/.hidden", "x");
  for (const char* const name : {"/set", "/set/*.npy"}) {
    const SplitText text = Open({"data.train", path_ + name});
    EXPECT_THAT(All(*text.train[0]), ElementsAre(1, 2, 3, 4));
    EXPECT_THAT(text.train[0]->DocumentStarts(0, 4), ElementsAre(0, 2)) << "a file is a document";
  }
  folder_.Write("set/notes.txt", "text");
  EXPECT_THAT(Error(path_ + "/set"), HasSubstr("notes.txt does not begin as numpy's files do"));
}

TEST_F(TokenFilesTest, WhatIsNotWholeIsNamed) {
  const std::string idx = IdxOf({{1, 2}, {3}}, true);
  const std::string bin = BinOf({{1, 2}, {3}}, true);
  const std::string prefix = path_ + "/text";
  const auto pair = [&](const std::string& tokens, const std::string& index) {
    folder_.Write("text.bin", tokens);
    folder_.Write("text.idx", index);
    return Error(prefix);
  };
  EXPECT_EQ(pair(bin, idx), "");
  EXPECT_THAT(pair(bin, idx.substr(0, idx.size() - 1)),
              HasSubstr("text.idx has 81 bytes where its header asks for 82"));
  EXPECT_THAT(pair(bin, "x"), HasSubstr("text.idx is not an index"));
  EXPECT_THAT(pair(bin + "x", idx),
              HasSubstr("text.bin has 7 bytes, which is not a whole number of tokens of 2"));
  EXPECT_THAT(pair("", IdxOf({}, true)), HasSubstr("text.bin has no token"));
  std::string floats = idx;
  floats[17] = 7;
  EXPECT_THAT(pair(bin, floats), HasSubstr("has tokens of type 7"));
  const auto file = [&](const std::string& content, TextFormat format = TextFormat::kAuto) {
    return Error(folder_.Write("file", content), format);
  };
  EXPECT_THAT(file(Npy("<f4", "(1,)", "1234")), HasSubstr("has numbers of type '<f4'; allowed: |u1, <u2"));
  EXPECT_THAT(file(Npy("<u2", "(9,)", "1234")), HasSubstr("says that it has 9 numbers, and has 2"));
  EXPECT_THAT(file(Npy("<u2", "(9", "1234")), HasSubstr("has a header without a shape; allowed: "));
  EXPECT_THAT(file(Npy("<u2", "(4611686018427387904, 4,)", "1234")), HasSubstr("has a shape with 4"));
  EXPECT_THAT(file(Npy("<u2", "(2,)", "1234").substr(0, 40)), HasSubstr("or was cut off"));
  EXPECT_THAT(file(Llmc(20240522, 1, 2, "1234")), HasSubstr("questions with answers"));
  EXPECT_THAT(file(Llmc(20240520, 2, 2, "1234")), HasSubstr("has magic 20240520 and version 2"));
  EXPECT_THAT(file(Llmc(20240520, 1, 3, "1234")), HasSubstr("says that it has 3 tokens, and has 2"));
  EXPECT_THAT(file("123", TextFormat::kFlat),
              HasSubstr("has 3 bytes, which is not a whole number of tokens of 2"));
  EXPECT_THAT(file("1234", TextFormat::kNpy), HasSubstr("format: flat and token_type"));
  EXPECT_THAT(Error(path_ + "/none", TextFormat::kNpy), HasSubstr("no such file"));
}

TEST_F(TokenFilesTest, WhatLooksLikeNoTokensIsText) {
  folder_.Write("alone.bin", "x");
  folder_.Write("a.txt", "text");
  for (const char* const name : {"/alone.bin", "/alone", "/a.txt", "", "/none"}) {
    EXPECT_EQ(FormatOf(path_ + name, TextFormat::kAuto), TextFormat::kBytes) << name;
  }
  EXPECT_THROW(Open({"data.train", path_ + "/alone.bin"}), DataError);
  EXPECT_NO_THROW(Open({"data.train", folder_.Write("long.bin", std::string(100, 'x')), TextFormat::kBytes},
                       0, std::nullopt));
}

TEST_F(TokenFilesTest, FilesOrCopiesInBothSplitsAreRefused) {
  const std::string shape = absl::StrCat("(", kTokens.size(), ",)");
  const std::string a = folder_.Write("d/a.npy", Npy("<u2", shape, Numbers<uint16_t>(kTokens)));
  folder_.Write("d/b.npy", Npy("<u2", "(4,)", Numbers<uint16_t>({4, 3, 2, 1})));
  const std::string copy = folder_.Write("copy.npy", Npy("<u2", shape, Numbers<uint16_t>(kTokens)));
  const std::string other = folder_.Write("other.npy", Npy("<u2", "(4,)", Numbers<uint16_t>({4, 3, 2, 2})));
  const auto error = [&](const std::string& validation) {
    return Refusal({.train = {{"data.sources[0].path", other}, {"data.sources[1].path", path_ + "/d/*.npy"}},
                    .validation = {{"data.validation", validation}}});
  };
  const std::string remedy =
      "data.sources[1].path, " + a +
      "; name other files, or hold out a part of data.sources[1].path with data.validation_fraction";
  EXPECT_EQ(error(a), "data.validation: " + a + " is also a file of " + remedy);
  const std::string link = path_ + "/link.npy";
  std::filesystem::create_hard_link(a, link);
  EXPECT_EQ(error(link), "data.validation: " + link + " is also a file of " + remedy);
  EXPECT_EQ(error(copy), "data.validation: " + copy + " has the same tokens as " + remedy);
  EXPECT_EQ(error(folder_.Write("new.npy", Npy("<u2", "(4,)", Numbers<uint16_t>({4, 3, 2, 5})))), "no error");
}

TEST_F(TokenFilesTest, AnIndexEndsDocumentsWhereverItIs) {
  const std::vector<Document> documents = {{1, 2, 3, 4}, {5, 6, 7}};
  folder_.Write("pair.bin", BinOf(documents, true));
  folder_.Write("pair.idx", IdxOf(documents, true));
  const std::string npy = folder_.Write("a.npy", Npy("<u2", "(4,)", Numbers<uint16_t>({4, 3, 2, 5})));
  const Documents documents_end{.end_of_document = 10};
  EXPECT_EQ(Refusal({.train = {{"data.train", npy}}, .documents = documents_end}), "no error");
  EXPECT_THAT(Refusal({.train = {{"data.train", npy}},
                       .validation = {{"data.validation", path_ + "/pair"}},
                       .documents = documents_end}),
              HasSubstr("data.end_of_document: data.validation, "));
}

// What others have made is not made again with tandem data prepare.
TEST_F(TokenFilesTest, ForeignFilesHaveARemedyOfTheirOwn) {
  const std::vector<Document> documents = {{1, 2, 3, 4}, {5, 6, 7}};
  folder_.Write("pair.bin", BinOf({{1, 2, 3, 4}, {5, 6}}, true));
  folder_.Write("pair.idx", IdxOf(documents, true));
  EXPECT_THAT(ErrorOf([&] {
                Open({"data.train", path_ + "/pair"});
              }),
              testing::AllOf(HasSubstr("do not fill the 6 tokens of "),
                             HasSubstr("; copy the file again, or make it again"),
                             testing::Not(HasSubstr("prepare"))));
}

TEST_F(TokenFilesTest, AnUnknownTokenizerIsLikeAny) {
  TokenText known{.dataset = Dataset{.tokenizer_digest = "a"}};
  TokenText other = known;
  EXPECT_TRUE(HaveSameTokenizer(known, {}));
  EXPECT_TRUE(HaveSameTokenizer(known, other));
  other.dataset->tokenizer_digest = "b";
  EXPECT_FALSE(HaveSameTokenizer(known, other));
}

// Whatever is in a header, what comes out is a file of the bytes that there are, or an error.
TEST(TokenHeaderTest, AHundredThousandBrokenHeadersAreNamed) {
  const auto seed = std::random_device()();
  std::cout << "seed " << seed << "\n";
  std::mt19937 random(seed);
  const std::vector<std::string> good = {Npy("<u2", "(2, 1)", "1234"), Llmc(20240520, 1, 2, "1234")};
  for (int i = 0; i < 100'000; ++i) {
    std::string bytes = good[i % 2];
    for (uint32_t change = 0; change < 1 + random() % 4; ++change) {
      bytes[random() % std::min<size_t>(bytes.size(), 140)] = static_cast<char>(random());
    }
    bytes.resize(random() % 3 == 0 ? random() % (bytes.size() + 1) : bytes.size());
    const auto size = static_cast<int64_t>(bytes.size());
    const absl::StatusOr<TokenFile> file =
        i % 2 == 0 ? ParseNumpyHeader(bytes, size) : ParseLlmcHeader(bytes, size);
    if (file.ok()) {
      EXPECT_EQ(file->begin + file->tokens * BytesOf(file->type), size);
    } else {
      EXPECT_FALSE(file.status().message().empty());
    }
  }
}

}  // namespace
}  // namespace tandem::data
