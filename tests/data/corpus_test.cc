// SPDX-License-Identifier: Apache-2.0
#include "data/corpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "tests/data/data_error.h"
#include "tests/platform/fake_clock.h"
#include "tests/platform/irregular_files.h"
#include "tests/platform/temporary_folder.h"

namespace tandem::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Corpus CorpusOf(const TextOptions& options) { return {options, platform::SteadyClock()}; }

int64_t NumTokens(const Corpus& corpus, Split split) { return corpus.Open(split)->num_tokens(); }

std::string Text(const Corpus& corpus, Split split) {
  std::vector<int64_t> tokens(NumTokens(corpus, split));
  corpus.Open(split)->Read(0, NumTokens(corpus, split), tokens.data());
  return std::string(tokens.begin(), tokens.end());
}

TextIdentity IdentityOf(const Corpus& corpus, size_t text = 0) {
  return corpus.Open({Split::kTrain, text})->identity();
}
std::string DigestOf(const Corpus& corpus, size_t text = 0) { return IdentityOf(corpus, text).digest; }
std::string ContentDigestOf(const Corpus& corpus) { return IdentityOf(corpus).content_digest; }

std::string Error(const TextOptions& source) {
  return ErrorOf([&] { const Corpus corpus = CorpusOf(source); });
}

TEST(CorpusTest, IrregularFileIsNamedOrLeftOut) {
  for (const std::string kind : {"a FIFO", "a socket", "a device"}) {
    platform::TemporaryFolder folder;
    folder.Write("a.txt", "aaaa");
    const std::string path = folder.path() + "/b";
    platform::PutIrregularFile(kind, path);
    EXPECT_EQ(Error({.train = {{"data.train", path}}}),
              "data.train: " + path + ": " + path + " is " + kind + ", neither a file nor a folder");
    EXPECT_THAT(CorpusOf({.train = {{"data.train", folder.path()}}}).files(Split::kTrain),
                ElementsAre("a.txt"));
  }
}

TEST(CorpusTest, FilesFollowInPathOrder) {
  platform::TemporaryFolder folder;
  folder.Write("b.txt", "bb");
  folder.Write("a/z.txt", "zz");
  folder.Write("empty.txt", "");
  folder.Write("c.txt", std::string("c\0\xff", 3));
  const Corpus corpus = CorpusOf({.train = {{"data.train", folder.path()}}});
  EXPECT_THAT(corpus.files(Split::kTrain), ElementsAre("a/z.txt", "b.txt", "c.txt"));
  std::vector<int64_t> tokens(7);
  corpus.Open(Split::kTrain)->Read(0, 7, tokens.data());
  EXPECT_THAT(tokens, ElementsAre('z', 'z', 'b', 'b', 'c', 0, 255));
  corpus.Open(Split::kTrain)->Read(1, 4, tokens.data());
  EXPECT_THAT(std::vector<int64_t>(tokens.begin(), tokens.begin() + 4), ElementsAre('z', 'b', 'b', 'c'));
  EXPECT_EQ(NumTokens(corpus, Split::kValidation), 0);
}

TEST(CorpusTest, SeveralHeldOutTextsStayApart) {
  platform::TemporaryFolder folder;
  folder.Write("train/a", "aaaa");
  folder.Write("train/copy", "dddd");
  folder.Write("en/e", "eeee");
  folder.Write("de/d", "dddd");
  const auto source = [&](const std::string& second) {
    return TextOptions{.train = {{"data.train", folder.path() + "/train"}},
                       .validation = {{"data.validation_sets[0].path", folder.path() + "/en"},
                                      {"data.validation_sets[1].path", folder.path() + second}}};
  };
  const Corpus corpus = CorpusOf(source("/de"));
  EXPECT_EQ(Text(corpus, Split::kTrain), "aaaa");
  EXPECT_EQ(corpus.num_texts(Split::kValidation), 2u);
  EXPECT_THAT(corpus.files({Split::kValidation, 1}), ElementsAre("d"));
  std::vector<int64_t> tokens(2);
  corpus.Open({Split::kValidation, 1})->Read(1, 2, tokens.data());
  EXPECT_THAT(tokens, ElementsAre('d', 'd'));
  EXPECT_THAT(corpus.Summary(), HasSubstr("held out: 2 files of 8 bytes (e, d); left out: 1 training file"));
  EXPECT_THAT(Error(source("/train/a")), HasSubstr("data.validation_sets[1].path: " + folder.path() +
                                                   "/train/a is also a training file"));
}

TEST(CorpusTest, HoldsOutWholeFilesOfAboutTheFraction) {
  platform::TemporaryFolder folder;
  for (int i = 0; i < 200; ++i) {
    folder.Write("d" + std::to_string(i % 7) + "/f" + std::to_string(i), std::string(100 + i, 'x'));
  }
  const Corpus corpus = CorpusOf({.train = {{"data.train", folder.path()}}, .validation_fraction = 0.1});
  const double held = static_cast<double>(NumTokens(corpus, Split::kValidation));
  const double all = held + static_cast<double>(NumTokens(corpus, Split::kTrain));
  EXPECT_NEAR(held / all, 0.1, 0.005);
  EXPECT_EQ(corpus.files(Split::kTrain).size() + corpus.files(Split::kValidation).size(), 200);
  for (const std::string& name : corpus.files(Split::kValidation)) {
    EXPECT_THAT(corpus.files(Split::kTrain), ::testing::Not(::testing::Contains(name)));
  }
}

TEST(CorpusTest, HoldsOutTheSameFilesOfACopy) {
  platform::TemporaryFolder one;
  platform::TemporaryFolder two;
  for (int i = 0; i < 30; ++i) {
    one.Write("f" + std::to_string(i), std::string(50, static_cast<char>('A' + i)));
    two.Write("f" + std::to_string(i), std::string(50, static_cast<char>('A' + (i + 1) % 30)));
  }
  const Corpus a = CorpusOf({.train = {{"data.train", one.path()}}, .validation_fraction = 0.2});
  const Corpus b = CorpusOf({.train = {{"data.train", two.path() + "/"}}, .validation_fraction = 0.2});
  const Corpus c = CorpusOf({.train = {{"data.train", two.path() + "/f*"}}, .validation_fraction = 0.2});
  EXPECT_EQ(a.files(Split::kValidation), b.files(Split::kValidation));
  EXPECT_EQ(a.files(Split::kValidation), c.files(Split::kValidation));
  EXPECT_EQ(DigestOf(a), DigestOf(b));
  EXPECT_EQ(DigestOf(a), DigestOf(c));
}

TEST(CorpusTest, FewFilesAreSplitByTheFraction) {
  struct Case {
    const char* name;
    std::vector<std::string> texts;  // of files "0", "1", ...
    double fraction;
    std::string trained;
    std::string held_out;
  };
  const std::vector<Case> cases = {
      {"the shorter of two files", {"long text", "short"}, 0.01, "long text", "short"},
      {"the end of one file", {"0123456789"}, 0.2, "01234567", "89"},
      {"nothing", {"aa", "bb"}, 0, "aabb", ""},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.name);
    platform::TemporaryFolder folder;
    for (size_t i = 0; i < one.texts.size(); ++i) {
      folder.Write(std::to_string(i), one.texts[i]);
    }
    const Corpus corpus =
        CorpusOf({.train = {{"data.train", folder.path()}}, .validation_fraction = one.fraction});
    EXPECT_EQ(Text(corpus, Split::kTrain), one.trained);
    EXPECT_EQ(Text(corpus, Split::kValidation), one.held_out);
  }
}

TEST(CorpusTest, OwnValidationFilesLeaveTheTrainingFilesWhole) {
  platform::TemporaryFolder folder;
  folder.Write("train/a", "aa");
  folder.Write("held/b", "bb");
  const Corpus corpus = CorpusOf({.train = {{"data.train", folder.path() + "/train"}},
                                  .validation = {{"data.validation", folder.path() + "/h?ld/*"}}});
  EXPECT_EQ(Text(corpus, Split::kTrain), "aa");
  EXPECT_EQ(Text(corpus, Split::kValidation), "bb");
}

TEST(CorpusTest, FileUnderTwoNamesCountsOnce) {
  platform::TemporaryFolder folder;
  for (const char* name : {"a", "b", "c", "d"}) {
    folder.Write(name, std::string(10, *name));
    std::filesystem::create_hard_link(folder.path() + "/" + name, folder.path() + "/" + name + ".hard");
    std::filesystem::create_symlink(name, folder.path() + "/" + name + ".soft");
  }
  const Corpus corpus = CorpusOf({.train = {{"data.train", folder.path()}}, .validation_fraction = 0.5});
  EXPECT_EQ(NumTokens(corpus, Split::kTrain), 20);
  EXPECT_EQ(NumTokens(corpus, Split::kValidation), 20);
  std::vector<std::string> names = corpus.files(Split::kTrain);
  for (const std::string& name : corpus.files(Split::kValidation)) {
    names.push_back(name);
  }
  EXPECT_THAT(names, ::testing::UnorderedElementsAre("a", "b", "c", "d"));
}

// A copy of a held-out file among the training files makes its validation loss a training loss.
TEST(CorpusTest, HeldOutCopiesAreNotTrainedOn) {
  platform::TemporaryFolder folder;
  const platform::TemporaryFolder without;
  for (int i = 0; i < 8; ++i) {
    const std::string text(257, static_cast<char>('a' + i));
    without.Write("f" + std::to_string(i), text);
    folder.Write("f" + std::to_string(i), text);
    folder.Write(".ipynb_checkpoints/f" + std::to_string(i), text);
    folder.Write("f" + std::to_string(i) + "~", text);
  }
  const Corpus plain = CorpusOf({.train = {{"data.train", without.path()}}, .validation_fraction = 0.25});
  const Corpus hidden = CorpusOf({.train = {{"data.train", folder.path()}}, .validation_fraction = 0.25});
  EXPECT_EQ(hidden.files(Split::kValidation), plain.files(Split::kValidation));
  EXPECT_EQ(DigestOf(hidden), DigestOf(plain));
  EXPECT_THAT(hidden.Summary(), HasSubstr("; skipped: 9 hidden names"));
  for (int i = 0; i < 8; ++i) {
    folder.Write("copies/f" + std::to_string(i), std::string(257, static_cast<char>('a' + i)));
  }
  const Corpus copied = CorpusOf({.train = {{"data.train", folder.path()}}, .validation_fraction = 0.25});
  const std::string trained = Text(copied, Split::kTrain);
  for (const char held : Text(copied, Split::kValidation)) {
    ASSERT_EQ(trained.find(held), std::string::npos);
  }
  EXPECT_THAT(copied.Summary(), HasSubstr("with the bytes of a held-out one"));
}

TEST(CorpusTest, CopyOfAValidationFileIsLeftOut) {
  platform::TemporaryFolder folder;
  folder.Write("train/a", "aaaa");
  folder.Write("train/b", "bbbb");
  folder.Write("held/c", "aaaa");
  const Corpus corpus = CorpusOf({.train = {{"data.train", folder.path() + "/train"}},
                                  .validation = {{"data.validation", folder.path() + "/held"}}});
  EXPECT_THAT(corpus.files(Split::kTrain), ElementsAre("b"));
  EXPECT_EQ(
      corpus.Summary(),
      "training: 1 file of 4 bytes; held out: 1 file of 4 bytes (c); left out: 1 training file with the "
      "bytes of a held-out one");
  folder.Write("held/d", "bbbb");
  EXPECT_EQ(Error({.train = {{"data.train", folder.path() + "/train"}},
                   .validation = {{"data.validation", folder.path() + "/held"}}}),
            "data.train: every training file is a copy of one that is held out; use other files, or no "
            "validation");
}

TEST(CorpusTest, TrainedValidationFileIsRefused) {
  platform::TemporaryFolder folder;
  folder.Write("train/a", "aaaa");
  std::filesystem::create_symlink("train/a", folder.path() + "/link");
  EXPECT_EQ(
      Error({.train = {{"data.train", folder.path() + "/train"}},
             .validation = {{"data.validation", folder.path() + "/train/a"}}}),
      "data.validation: " + folder.path() +
          "/train/a is also a training file; name files that are not in data.train, or hold out a part of "
          "it with data.validation_fraction");
  EXPECT_THAT(Error({.train = {{"data.train", folder.path() + "/train"}},
                     .validation = {{"data.validation", folder.path() + "/link"}}}),
              HasSubstr("/link is also a training file, " + folder.path() + "/train/a; "));
}

TEST(CorpusTest, FileWrittenDuringReadingIsNamed) {
  platform::TemporaryFolder folder;
  folder.Write("a", "aaaa");
  const std::string path = folder.Write("b", std::string(100'000, 'b'));
  platform::FakeClock clock;
  const auto tokens = Corpus({.train = {{"data.train", folder.path()}}}, clock).Open(Split::kTrain, {});
  const auto error = [&] {
    clock.Advance(FileReader::kCheckEvery);
    int64_t read[8];
    return ErrorOf([&] { tokens->Read(0, 8, read); });
  };
  EXPECT_EQ(error(), "no error");
  std::filesystem::resize_file(path, 10);
  EXPECT_EQ(error(),
            "data.train: " + path +
                " was changed while the job reads it: it had 100000 bytes and now has 10; train on a "
                "copy that stays as it is");
  // The same size at a later time.
  folder.Write("b", std::string(100'000, 'c'));
  const auto written = std::filesystem::last_write_time(path);
  std::filesystem::last_write_time(path, written + std::chrono::seconds(1));
  EXPECT_THAT(error(), HasSubstr(path + " was changed"));
}

TEST(CorpusTest, DigestDistinguishesNamesSizesAndHeldOutParts) {
  platform::TemporaryFolder folder;
  folder.Write("a", "aaaa");
  folder.Write("b", "bbbb");
  const std::string digest = DigestOf(CorpusOf({.train = {{"data.train", folder.path()}}}));
  EXPECT_EQ(digest.size(), 32);
  EXPECT_EQ(DigestOf(CorpusOf({.train = {{"data.train", folder.path()}}})), digest);
  EXPECT_NE(DigestOf(CorpusOf({.train = {{"data.train", folder.path()}}, .validation_fraction = 0.5})),
            digest);
  folder.Write("b", "bbbbb");
  EXPECT_NE(DigestOf(CorpusOf({.train = {{"data.train", folder.path()}}})), digest);
  folder.Write("b", "bbbb");
  EXPECT_EQ(DigestOf(CorpusOf({.train = {{"data.train", folder.path()}}})), digest);
  folder.Write("c", "c");
  EXPECT_NE(DigestOf(CorpusOf({.train = {{"data.train", folder.path()}}})), digest);
}

TEST(CorpusTest, FileOfTwoTextsIsRefused) {
  platform::TemporaryFolder folder;
  const std::string file = folder.Write("d/x.txt", std::string(100, 'x'));
  folder.Write("d/y.txt", std::string(100, 'y'));
  const auto error = [&](const std::string& second, double fraction) {
    return Error({.train = {{"data.sources[0].path", folder.path() + "/d"}, {"data.sources[1].path", second}},
                  .validation_fraction = fraction});
  };
  EXPECT_EQ(
      error(file, 0.1),
      "data.sources[1].path: " + file +
          " is also a file of data.sources[0].path, and what is held out of the one would be trained on "
          "through the other; name other files, name held-out text with data.validation, or set "
          "data.validation_fraction to 0");
  EXPECT_EQ(error(file, 0), "no error") << "nothing is held out";
  EXPECT_EQ(error(folder.path() + "/d", 0.1), "no error") << "the same is held out of both";
}

TEST(CorpusTest, MixturesTextHasItsOwnDigest) {
  platform::TemporaryFolder folder;
  folder.Write("one/a", std::string(100, 'a'));
  folder.Write("two/b", std::string(50, 'b'));
  folder.Write("held", std::string(30, 'h'));
  const TextPath one{"data.sources[0].path", folder.path() + "/one"};
  const TextPath two{"data.sources[1].path", folder.path() + "/two"};
  const std::vector<TextPath> held = {{"data.validation", folder.path() + "/held"}};
  for (const std::vector<TextPath>& validation : {std::vector<TextPath>{}, held}) {
    const auto corpus_of = [&](const std::vector<TextPath>& train) {
      return CorpusOf({.train = train, .validation = validation, .validation_fraction = 0.1});
    };
    const Corpus both = corpus_of({one, two});
    EXPECT_EQ(DigestOf(both, 0), DigestOf(corpus_of({one})));
    EXPECT_EQ(DigestOf(both, 1), DigestOf(corpus_of({two})));
    EXPECT_NE(DigestOf(both, 0), DigestOf(both, 1));
  }
}

// They are read several at a time, and checkpoints of older builds have these digests.
TEST(CorpusTest, ConcurrentReadingKeepsOrderAndDigests) {
  platform::TemporaryFolder folder;
  std::vector<std::string> names;
  for (int i = 0; i < 700; ++i) {
    names.push_back(std::to_string(i) + ".txt");
    folder.Write(names.back(), "file " + std::to_string(i) + "\n");
  }
  const Corpus all = CorpusOf({.train = {{"data.train", folder.path()}}});
  std::sort(names.begin(), names.end());
  EXPECT_EQ(all.files(Split::kTrain), names);
  const Corpus corpus = CorpusOf({.train = {{"data.train", folder.path()}}, .validation_fraction = 0.1});
  EXPECT_EQ(DigestOf(corpus), "c8003b877561b242ac91fd2505477378");
  EXPECT_EQ(ContentDigestOf(corpus), "c601d56bed9e22f9481653830bc888da");
}

TEST(CorpusTest, OtherContentHasAnotherDigest) {
  platform::TemporaryFolder folder;
  folder.Write("a", "aaaa");
  folder.Write("b", std::string(1'000'000, 'b'));
  const Corpus first = CorpusOf({.train = {{"data.train", folder.path()}}});
  EXPECT_EQ(ContentDigestOf(first).size(), 32);
  const auto digest_of = [&](const std::string& name, const std::string& content) {
    folder.Write(name, content);
    const Corpus corpus = CorpusOf({.train = {{"data.train", folder.path()}}});
    EXPECT_EQ(DigestOf(corpus), DigestOf(first));
    return ContentDigestOf(corpus);
  };
  EXPECT_NE(digest_of("a", "aaba"), ContentDigestOf(first));
  EXPECT_EQ(digest_of("a", "aaaa"), ContentDigestOf(first));
  EXPECT_NE(digest_of("b", std::string(1'000'000, 'c')), ContentDigestOf(first));
  std::string changed(1'000'000, 'b');
  changed.back() = 'c';
  EXPECT_NE(digest_of("b", changed), ContentDigestOf(first));
}

TEST(CorpusTest, ACopyElsewhereHasTheSameContentDigest) {
  platform::TemporaryFolder one;
  platform::TemporaryFolder two;
  for (const auto* const folder : {&one, &two}) {
    folder->Write("a", std::string(100'000, 'a'));
    folder->Write("b", std::string(100'000, 'b'));
  }
  std::filesystem::last_write_time(two.path() + "/a", std::filesystem::file_time_type::min());
  const Corpus a = CorpusOf({.train = {{"data.train", one.path()}}, .validation_fraction = 0.5});
  const Corpus b = CorpusOf({.train = {{"data.train", two.path()}}, .validation_fraction = 0.5});
  EXPECT_EQ(ContentDigestOf(a), ContentDigestOf(b));
  two.Write("b", std::string(100'000, 'c'));  // the one that is held out, or the other
  EXPECT_NE(ContentDigestOf(CorpusOf({.train = {{"data.train", two.path()}}, .validation_fraction = 0.5})),
            ContentDigestOf(a));
}

TEST(CorpusTest, SaysWhatIsWrong) {
  platform::TemporaryFolder folder;
  EXPECT_EQ(Error({.train = {{"data.train", "/does/not/exist"}}}),
            "data.train: /does/not/exist: no such file or folder");
  EXPECT_EQ(Error({.train = {{"data.train", folder.path()}}}),
            "data.train: " + folder.path() + ": the folder holds no file");
  folder.Write("empty", "");
  EXPECT_EQ(Error({.train = {{"data.train", folder.path()}}}),
            "data.train: " + folder.path() + ": every file is empty (1 of them)");
  folder.Write("text", "text");
  EXPECT_EQ(Error({.train = {{"data.train", folder.path()}},
                   .validation = {{"data.validation", folder.path() + "/*.md"}}}),
            "data.validation: " + folder.path() + "/*.md: nothing matches");
}

// Their bytes would be trained on without a word.
TEST(CorpusTest, NonTextFilesAreRefusedByTheirBeginning) {
  const std::vector<std::pair<std::string, std::string>> kinds = {
      {std::string("MMIDIDX\0\0", 9), "an index of tokens"},
      {"\x1f\x8b\x08", "a gzip file"},
      {"\x28\xb5\x2f\xfd", "a zstd file"},
      {"PAR1", "a Parquet file"},
      {"\x93NUMPY", "a numpy file"},
      {std::string("\x08\0\0\0\0\0\0\0{", 9), "a safetensors file"}};
  for (const auto& [beginning, kind] : kinds) {
    platform::TemporaryFolder folder;
    const std::string path = folder.Write("file", beginning + std::string(100, ' '));
    EXPECT_THAT(Error({.train = {{"data.train", folder.path()}}}),
                HasSubstr("data.train: " + path + " is " + kind + "; its bytes are"));
  }
  platform::TemporaryFolder folder;
  folder.Write("page.txt", "PAR for the course {");
  EXPECT_EQ(Error({.train = {{"data.train", folder.path()}}}), "no error");
}

}  // namespace
}  // namespace tandem::data
