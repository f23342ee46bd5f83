// SPDX-License-Identifier: Apache-2.0
// Measures how fast one thread reads the batches of a job: a mixture of four prepared texts, shuffled, with
// packed documents and sequences of 4096 tokens. Prints one line of JSON: medians of five runs, from the page
// cache, and from the disk, there beside reads of as many blocks of a window's size at random places of the
// same files.
//   tandem-bench-loader FOLDER [MEBITOKENS]
// Makes FOLDER with MEBITOKENS (by default 128) of each text, and removes it.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "bench/result_line.h"
#include "data/loader.h"
#include "data/text.h"
#include "nlohmann/json.hpp"
#include "platform/clock.h"
#include "tests/data/page_cache.h"
#include "tests/data/prepared_folder.h"

namespace {

constexpr int64_t kSequence = 4096;
constexpr int64_t kSequences = 8;  // of a microbatch
constexpr int kRuns = 5;
constexpr int kWarmBatches = 1000;
constexpr int kColdBatches = 100;
constexpr double kWeights[] = {0.5, 0.3, 0.15, 0.05};

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Where a dataset is written (tests/data/prepared_folder.h).
class Folder {
 public:
  explicit Folder(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  void Write(const std::string& name, const std::string& content) const {
    const std::filesystem::path file = std::filesystem::path(path_) / name;
    std::filesystem::create_directories(file.parent_path());
    if (!(std::ofstream(file, std::ios::binary) << content).flush()) {
      throw std::runtime_error(absl::StrCat(file.string(), ": cannot be written"));
    }
  }

 private:
  const std::string path_;
};

// Random tokens in documents of 50 to 2,000.
std::vector<tandem::data::Document> RandomDocuments(int64_t tokens, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<tandem::data::Document> documents;
  for (int64_t left = tokens; left > 0; left -= std::ssize(documents.back())) {
    const int64_t length = std::min<int64_t>(left, 50 + static_cast<int64_t>(random() % 1951));
    std::generate_n(std::back_inserter(documents.emplace_back()), length,
                    [&] { return static_cast<int64_t>(random() % 1000); });
  }
  return documents;
}

class Reader {
 public:
  Reader(const std::string& folder, int64_t tokens) : tokens_(tokens) {
    tandem::data::TextOptions options{.documents = tandem::data::Documents{}, .sequence_length = kSequence};
    for (size_t i = 0; i < std::size(kWeights); ++i) {
      const std::string name = absl::StrCat("text-", i);
      std::vector<std::vector<tandem::data::Document>> shards;
      shards.push_back(RandomDocuments(tokens, i + 1));  // moved: a list of initializers would be copied
      folders_.push_back(tandem::data::WriteDataset(Folder(folder), name, shards));
      options.train.push_back({.field = "data.train", .path = folders_.back()});
    }
    const tandem::data::SplitText text = tandem::data::OpenText(options, tandem::platform::SteadyClock());
    std::vector<tandem::data::LoaderText> texts;
    for (size_t i = 0; i < std::size(kWeights); ++i) {
      texts.push_back({.source = text.train[i], .name = absl::StrCat("text-", i), .weight = kWeights[i]});
    }
    loader_ = std::make_unique<tandem::data::Loader>(texts, tandem::data::Split::kTrain, 1, kSequence,
                                                     tandem::data::RowOptions{.packs_documents = true});
  }

  // Seconds of so many batches, which were not read before, as a rank reads them: it asks the disk for each
  // while it reads the one before.
  double Read(int batches) {
    std::vector<int64_t> rows(static_cast<size_t>(kSequences * loader_->row_elements()));
    const double begin = Now();
    for (int i = 0; i < batches; ++i) {
      ++step_;
      loader_->WillFill(step_ + 1, 0, 1, kSequences);
      loader_->Fill(step_, 0, 1, kSequences, rows.data());
    }
    return Now() - begin;
  }

  // Seconds of as many reads of a window's bytes at random places.
  double ReadBlocks(int batches) {
    std::vector<int> files;
    for (const std::string& folder : folders_) {
      files.push_back(::open((folder + "/tokens-0.bin").c_str(), O_RDONLY));
    }
    std::vector<char> block(2 * (kSequence + 1));
    const auto size = static_cast<int64_t>(block.size());
    const double begin = Now();
    for (int64_t i = 0; i < batches * kSequences; ++i) {
      const int64_t window = static_cast<int64_t>(random_() % static_cast<uint64_t>(2 * tokens_ / size));
      if (::pread(files[i % files.size()], block.data(), block.size(), window * size) != size) {
        throw std::runtime_error("a block cannot be read");
      }
    }
    const double seconds = Now() - begin;
    for (const int file : files) {
      ::close(file);
    }
    return seconds;
  }

  void ForgetAll() const {
    for (const std::string& folder : folders_) {
      tandem::data::DropFromCache(folder + "/tokens-0.bin");
      tandem::data::DropFromCache(folder + "/tokens-0.idx");
    }
  }

 private:
  const int64_t tokens_;  // of a text
  std::vector<std::string> folders_;
  std::unique_ptr<tandem::data::Loader> loader_;
  int64_t step_ = 0;
  std::mt19937_64 random_{1};
};

void Measure(const std::string& folder, int64_t tokens) {
  Reader reader(folder, tokens);
  std::vector<double> cold;
  std::vector<double> blocks;
  std::vector<double> warm;
  for (int run = 0; run < kRuns; ++run) {
    reader.ForgetAll();
    blocks.push_back(reader.ReadBlocks(kColdBatches));
    reader.ForgetAll();
    cold.push_back(reader.Read(kColdBatches));
  }
  reader.Read(static_cast<int>(8 * tokens / (kSequences * kSequence)));  // all of each text is in memory
  for (int run = 0; run < kRuns; ++run) {
    warm.push_back(reader.Read(kWarmBatches));
  }
  const auto rate = [](double seconds, int batches) { return batches * kSequences * kSequence / seconds; };
  const double cold_rate = rate(tandem::bench::Median(cold), kColdBatches);
  const double block_rate = rate(tandem::bench::Median(blocks), kColdBatches);
  nlohmann::ordered_json result = {
      {"bench", "loader"},
      {"tokens_a_text", tokens},
      {"warm_tokens_per_second", rate(tandem::bench::Median(warm), kWarmBatches)},
      {"cold_tokens_per_second", cold_rate},
      {"cold_blocks_tokens_per_second", block_rate},
      {"cold_of_blocks", cold_rate / block_rate}};
  std::printf("%s\n", tandem::bench::ResultLine(std::move(result), tandem::bench::ProcessorName()).c_str());
}

}  // namespace

int main(int argc, char** argv) {
  int64_t mebitokens = 128;
  if (argc < 2 || argc > 3 || (argc == 3 && (!absl::SimpleAtoi(argv[2], &mebitokens) || mebitokens < 1)) ||
      std::filesystem::exists(argv[1])) {
    std::fprintf(stderr, "usage: tandem-bench-loader FOLDER [MEBITOKENS]; FOLDER must not exist yet\n");
    return 2;
  }
  const std::string folder = std::filesystem::absolute(argv[1]);
  int code = 0;
  try {
    Measure(folder, mebitokens << 20);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tandem-bench-loader: %s\n", error.what());
    code = 1;
  }
  std::filesystem::remove_all(folder);
  return code;
}
