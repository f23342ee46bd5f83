// SPDX-License-Identifier: Apache-2.0
#include "data/held_out_tokens.h"

#include <fcntl.h>
#include <unistd.h>

#include "absl/status/statusor.h"
#include "data/held_out.h"
#include "data/indexed_file.h"
#include "platform/regular_file.h"

namespace tandem::data {
namespace {

// The token of the file at which its first document from token `position` on begins.
int64_t DocumentInFile(const TokenFile& file, int64_t position) {
  const absl::StatusOr<platform::Descriptor> index = platform::OpenRegularFile(file.index, O_RDONLY);
  if (!index.ok()) {
    return position;
  }
  const IndexHeader header{.sequences = file.documents};
  bool is_read = true;
  const auto start_of = [&](int64_t sequence) {
    char bytes[8] = {};
    is_read =
        is_read && pread(index->get(), bytes, sizeof(bytes), header.PointerAt(sequence)) == sizeof(bytes);
    return IndexPointer(bytes) / BytesOf(file.type);
  };
  const int64_t sequence = SequenceFrom(header.sequences, position, file.tokens, start_of);
  const int64_t start = sequence == header.sequences ? file.tokens : start_of(sequence);
  return is_read && start >= position && start <= file.tokens ? start : position;
}

}  // namespace

int64_t EarliestHeldOut(const TokenText& text, double fraction, int64_t sequence_length) {
  const int64_t position = text.tokens - HeldOutTokens(text.tokens, fraction, sequence_length);
  int64_t begin = 0;
  for (const TokenFile& file : text.files) {
    if (position < begin + file.tokens) {
      return file.index.empty() ? position : begin + DocumentInFile(file, position - begin);
    }
    begin += file.tokens;
  }
  return position;
}

}  // namespace tandem::data
