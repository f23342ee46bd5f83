// SPDX-License-Identifier: Apache-2.0
// The rows that the ranks of a job read, for tests/data/second_reader_test.py: int64, little-endian, of each
// step, round and rank in that order, on standard output.
//
//   tandem_batches FOLDER FRACTION SPLIT SEED SEQUENCE_LENGTH PACKED STEPS RANKS ROUNDS SEQUENCES
//   [FIRST_STEP]
//
// FOLDER may be a mixture: NAME=WEIGHT=FOLDER,NAME=WEIGHT=FOLDER,...
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "data/loader.h"
#include "data/text.h"
#include "platform/clock.h"

int main(int argc, char** argv) {
  using tandem::data::Split;
  if (argc != 11 && argc != 12) {
    return 2;
  }
  const auto number = [&](int i) { return std::strtoll(argv[i], nullptr, 10); };
  const int64_t sequence_length = number(5);
  const bool packed = number(6) != 0;
  tandem::data::TextOptions options{.validation_fraction = std::strtod(argv[2], nullptr),
                                    .sequence_length = sequence_length};
  std::vector<tandem::data::LoaderText> texts;
  for (const std::string& text : std::vector<std::string>(absl::StrSplit(argv[1], ','))) {
    const std::vector<std::string> parts = absl::StrSplit(text, '=');
    options.train.push_back({.field = "data.train", .path = parts.back()});
    texts.push_back(
        parts.size() == 3
            ? tandem::data::LoaderText{.name = parts[0], .weight = std::strtod(parts[1].c_str(), nullptr)}
            : tandem::data::LoaderText());
  }
  if (packed) {
    options.documents = tandem::data::Documents{};
  }
  try {
    const tandem::data::SplitText text = tandem::data::OpenText(options, tandem::platform::SteadyClock());
    const bool train = std::string(argv[3]) == "train";
    bool has_masks = false;
    for (size_t i = 0; i < texts.size(); ++i) {
      texts[i].source = train ? text.train[i] : text.validation[i];
      has_masks = has_masks || texts[i].source->has_masks();
    }
    const tandem::data::Loader loader(texts, train ? Split::kTrain : Split::kValidation, number(4),
                                      sequence_length, {.packs_documents = packed, .has_targets = has_masks});
    const int64_t ranks = number(8);
    const int64_t rounds = number(9);
    const int64_t sequences = number(10);
    std::vector<int64_t> rows(sequences * loader.row_elements());
    for (int64_t step = argc == 12 ? number(11) : 1; step <= number(7); ++step) {
      for (int64_t round = 0; round < rounds; ++round) {
        for (int64_t rank = 0; rank < ranks; ++rank) {
          loader.Fill(step, round * ranks + rank, ranks * rounds, sequences, rows.data());
          std::fwrite(rows.data(), sizeof(int64_t), rows.size(), stdout);
        }
      }
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return std::fflush(stdout) == 0 ? 0 : 1;
}
