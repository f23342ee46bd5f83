// SPDX-License-Identifier: Apache-2.0
#include "data/indexed_file.h"

#include <algorithm>
#include <bit>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tandem::data {
namespace {

static_assert(std::endian::native == std::endian::little, "the files are read as they are");

constexpr std::string_view kMagic("MMIDIDX\0\0", 9);
constexpr int64_t kMostSequences = int64_t{1}
                                   << 56;  // 12 times as many bytes and a document index fit 64 bits

int64_t TokenBytes(int code) {
  constexpr int64_t kBytes[] = {0, 1, 1, 2, 4, 8, 0, 0, 2};
  return code >= 0 && code < 9 ? kBytes[code] : 0;
}

}  // namespace

absl::StatusOr<IndexHeader> ParseIndexHeader(std::string_view beginning, int64_t file_bytes) {
  if (beginning.size() < kIndexHeaderBytes || file_bytes < kIndexHeaderBytes ||
      !beginning.starts_with(kMagic)) {
    return absl::InvalidArgumentError("is not an index: it does not begin with MMIDIDX and a header");
  }
  const auto version = NumberAt<uint64_t>(beginning.data() + 9);
  if (version != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("has version ", version, " of the index format; only 1 is read"));
  }
  IndexHeader header;
  header.type_code = NumberAt<uint8_t>(beginning.data() + 17);
  header.token_bytes = TokenBytes(header.type_code);
  if (header.token_bytes == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("has tokens of type ", header.type_code, "; allowed: 1 to 5 and 8, which are integers"));
  }
  const auto sequences = NumberAt<uint64_t>(beginning.data() + 18);
  const auto entries = NumberAt<uint64_t>(beginning.data() + 26);
  if (sequences > kMostSequences || entries > kMostSequences) {
    return absl::InvalidArgumentError(absl::StrCat("says that it has ", sequences, " sequences and ", entries,
                                                   " entries of documents, in ", file_bytes, " bytes"));
  }
  header.sequences = static_cast<int64_t>(sequences);
  header.document_entries = static_cast<int64_t>(entries);
  const int64_t expected = header.EntryAt(header.document_entries);
  if (file_bytes != expected && file_bytes != expected + header.sequences) {
    return absl::InvalidArgumentError(absl::StrCat("has ", file_bytes, " bytes where its header asks for ",
                                                   expected, ": it was cut off, or is another file"));
  }
  return header;
}

int64_t SequenceNear(int64_t sequences, int64_t position, int64_t tokens) {
  const double share = tokens > 0 ? static_cast<double>(position) / static_cast<double>(tokens) : 0;
  return std::clamp(static_cast<int64_t>(share * static_cast<double>(sequences)), int64_t{0}, sequences);
}

int64_t SequenceFrom(int64_t sequences, int64_t position, int64_t tokens,
                     const std::function<int64_t(int64_t)>& start_of) {
  int64_t low = 0;
  int64_t high = sequences;
  const int64_t near = SequenceNear(sequences, position, tokens);
  int64_t step = 16;
  if (near < sequences && start_of(near) < position) {
    low = near + 1;
    for (; low + step < high; step *= 4) {
      if (start_of(low + step) >= position) {
        high = low + step;
        break;
      }
      low += step + 1;
    }
  } else {
    high = near;
    for (; low + step < high; step *= 4) {
      if (start_of(high - step) < position) {
        low = high - step + 1;
        break;
      }
      high -= step;
    }
  }
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (start_of(middle) < position) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

}  // namespace tandem::data
