// SPDX-License-Identifier: Apache-2.0
// The rows that the ranks of a job read, for tests/data/second_reader_test.py: int64, little-endian, of each
// step, round and rank in that order, on standard output.
//
//   tandem_batches FOLDER FRACTION SPLIT SEED SEQUENCE_LENGTH PACKED STEPS RANKS ROUNDS SEQUENCES
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "data/loader.h"
#include "data/text.h"
#include "platform/clock.h"

int main(int argc, char** argv) {
  using tandem::data::Split;
  if (argc != 11) {
    return 2;
  }
  const auto number = [&](int i) { return std::strtoll(argv[i], nullptr, 10); };
  const int64_t sequence_length = number(5);
  const bool packed = number(6) != 0;
  tandem::data::TextOptions options{.train = {"data.train", argv[1]},
                                    .validation_fraction = std::strtod(argv[2], nullptr),
                                    .sequence_length = sequence_length};
  if (packed) {
    options.documents = tandem::data::Documents{};
  }
  try {
    const tandem::data::SplitText text = tandem::data::OpenText(options, tandem::platform::SteadyClock());
    const bool train = std::string(argv[3]) == "train";
    const tandem::data::Loader loader(train ? text.train : text.validation[0],
                                      train ? Split::kTrain : Split::kValidation, number(4), sequence_length,
                                      {.packs_documents = packed});
    const int64_t ranks = number(8);
    const int64_t rounds = number(9);
    const int64_t sequences = number(10);
    std::vector<int64_t> rows(sequences * loader.row_elements());
    for (int64_t step = 1; step <= number(7); ++step) {
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
