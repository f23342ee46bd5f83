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
#include "bench/median.h"
#include "bench/result_line.h"
#include "data/loader.h"
#include "data/text.h"
#include "nlohmann/json.hpp"
#include "platform/clock.h"

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

template <typename Number>
void Write(std::ofstream& file, const std::vector<Number>& numbers) {
  file.write(reinterpret_cast<const char*>(numbers.data()),
             static_cast<std::streamsize>(numbers.size() * sizeof(Number)));
}

// A folder as tandem data prepare makes it, of random tokens in documents of 50 to 2,000.
void WriteText(const std::string& folder, int64_t tokens, uint64_t seed) {
  std::filesystem::create_directories(folder);
  std::mt19937_64 random(seed);
  std::vector<int32_t> lengths;
  std::vector<int64_t> begins;
  std::vector<int64_t> numbers = {0};
  for (int64_t at = 0; at < tokens; at += lengths.back()) {
    begins.push_back(at * 2);
    lengths.push_back(
        static_cast<int32_t>(std::min<int64_t>(tokens - at, 50 + static_cast<int64_t>(random() % 1951))));
    numbers.push_back(static_cast<int64_t>(lengths.size()));
  }
  std::ofstream bin(folder + "/tokens-00000.bin", std::ios::binary);
  std::vector<uint16_t> block(1 << 20);
  for (int64_t left = tokens; left > 0; left -= static_cast<int64_t>(block.size())) {
    block.resize(static_cast<size_t>(std::min<int64_t>(left, 1 << 20)));
    for (uint16_t& token : block) {
      token = static_cast<uint16_t>(random() % 32000);
    }
    Write(bin, block);
  }
  std::ofstream idx(folder + "/tokens-00000.idx", std::ios::binary);
  idx.write("MMIDIDX\0\0", 9);
  Write(idx, std::vector<uint64_t>{1});
  Write(idx, std::vector<uint8_t>{8});
  Write(idx, std::vector<uint64_t>{lengths.size(), lengths.size() + 1});
  Write(idx, lengths);
  Write(idx, begins);
  Write(idx, numbers);
  std::ofstream description(folder + "/dataset.json");
  description << absl::StrCat(
      R"({"format": "tandem-dataset", "version": 1, "tokenizer": {"kind": "huggingface", "path": "/t", "sha256": ")",
      std::string(64, 'a'), R"(", "vocabulary": 32000, "bos": null, "eos": 0, "pad": null}, )",
      R"("token_type": "u16", "documents": )", lengths.size(), R"(, "tokens": )", tokens,
      R"(, "shards": [{"name": "tokens-00000", "documents": )", lengths.size(), R"(, "tokens": )", tokens,
      "}]}\n");
  bin.close();
  idx.close();
  description.close();
  if (!bin || !idx || !description) {
    throw std::runtime_error(absl::StrCat(folder, ": cannot be written"));
  }
}

// Takes the file out of the page cache.
void Forget(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY);
  ::fdatasync(file);
  ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  ::close(file);
}

class Reader {
 public:
  Reader(const std::string& folder, int64_t tokens) : tokens_(tokens) {
    tandem::data::TextOptions options{.documents = tandem::data::Documents{}, .sequence_length = kSequence};
    for (size_t i = 0; i < std::size(kWeights); ++i) {
      const std::string name = absl::StrCat("text-", i);
      folders_.push_back(absl::StrCat(folder, "/", name));
      WriteText(folders_.back(), tokens, i + 1);
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
      files.push_back(::open((folder + "/tokens-00000.bin").c_str(), O_RDONLY));
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
      Forget(folder + "/tokens-00000.bin");
      Forget(folder + "/tokens-00000.idx");
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
