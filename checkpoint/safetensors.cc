// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"

namespace tandem::checkpoint {
namespace {

using Json = nlohmann::ordered_json;  // for writing
using ReadJson = nlohmann::json;  // for reading many names: ordered_json would compare each with all others

constexpr auto kLengthBytes = static_cast<size_t>(kSafetensorsLengthBytes);
constexpr uint64_t kMaxHeader = 100'000'000;
constexpr char kMetadata[] = "__metadata__";

absl::Status Bad(const std::string& reason) {
  return absl::InvalidArgumentError("not a safetensors file: " + reason);
}

// nlohmann keeps the last of two equal keys; the format forbids them, so they are found while parsing.
class DuplicateFinder {
 public:
  bool operator()(int, ReadJson::parse_event_t event, ReadJson& parsed) {
    if (event == ReadJson::parse_event_t::object_start) {
      keys_.emplace_back();
    } else if (event == ReadJson::parse_event_t::object_end) {
      keys_.pop_back();
    } else if (event == ReadJson::parse_event_t::key &&
               !keys_.back().insert(parsed.get<std::string>()).second) {
      duplicate_ = parsed.get<std::string>();
    }
    return true;
  }
  const std::string& duplicate() const { return duplicate_; }

 private:
  std::vector<std::set<std::string>> keys_;
  std::string duplicate_;
};

// Returns a non-negative integer; -1 if the value is not one.
int64_t Natural(const ReadJson& value) {
  if (!value.is_number_unsigned()) {
    return -1;
  }
  const auto number = value.get<uint64_t>();
  return number <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) ? static_cast<int64_t>(number)
                                                                              : -1;
}

struct Entry {
  std::string name;
  int64_t begin = 0;
  int64_t end = 0;
};

absl::StatusOr<Entry> ReadEntry(const std::string& name, const ReadJson& json, TensorPlace& tensor) {
  if (!json.is_object() || json.size() != 3 || !json.contains("dtype") || !json.contains("shape") ||
      !json.contains("data_offsets")) {
    return Bad("tensor '" + name + "' must have exactly dtype, shape and data_offsets");
  }
  const ReadJson& dtype = json["dtype"];
  const ReadJson& shape = json["shape"];
  const ReadJson& offsets = json["data_offsets"];
  if (!dtype.is_string() || BytesOfDtype(dtype.get<std::string>()) == 0) {
    return Bad("tensor '" + name + "' has an unknown dtype " + dtype.dump());
  }
  tensor.dtype = dtype.get<std::string>();
  int64_t bytes = BytesOfDtype(tensor.dtype);
  if (!shape.is_array()) {
    return Bad("tensor '" + name + "' has no shape");
  }
  for (const ReadJson& dim : shape) {
    tensor.shape.push_back(Natural(dim));
    if (tensor.shape.back() < 0 || __builtin_mul_overflow(bytes, tensor.shape.back(), &bytes)) {
      return Bad("tensor '" + name + "' has an impossible shape " + shape.dump());
    }
  }
  Entry entry{.name = name};
  if (offsets.is_array() && offsets.size() == 2) {
    entry.begin = Natural(offsets[0]);
    entry.end = Natural(offsets[1]);
  } else {
    entry.begin = -1;
  }
  if (entry.begin < 0 || entry.end < entry.begin || entry.end - entry.begin != bytes) {
    return Bad(
        absl::StrCat("tensor '", name, "' needs ", bytes, " bytes, its data_offsets are ", offsets.dump()));
  }
  return entry;
}

}  // namespace

int64_t BytesOfDtype(std::string_view dtype) {
  static constexpr std::pair<std::string_view, int64_t> kDtypes[] = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1},
      {"U16", 2},  {"I16", 2}, {"F16", 2}, {"BF16", 2},    {"U32", 4},     {"I32", 4},
      {"F32", 4},  {"U64", 8}, {"I64", 8}, {"F64", 8}};
  for (const auto& [name, bytes] : kDtypes) {
    if (name == dtype) {
      return bytes;
    }
  }
  return 0;
}

absl::StatusOr<std::string> SafetensorsBeginning(const std::vector<TensorToWrite>& tensors,
                                                 const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) {
    header[kMetadata] = metadata;
  }
  int64_t offset = 0;
  for (const TensorToWrite& tensor : tensors) {
    int64_t bytes = BytesOfDtype(tensor.dtype);
    if (bytes == 0) {
      return absl::InvalidArgumentError("safetensors: unknown dtype " + tensor.dtype);
    }
    for (const int64_t dim : tensor.shape) {
      if (dim < 0 || __builtin_mul_overflow(bytes, dim, &bytes)) {
        return absl::InvalidArgumentError("safetensors: impossible shape of " + tensor.name);
      }
    }
    if (tensor.name == kMetadata || header.contains(tensor.name)) {
      return absl::InvalidArgumentError("safetensors: the name " + tensor.name + " is taken");
    }
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(std::string("safetensors: a name is not UTF-8: ") + error.what());
  }
  text.append((kLengthBytes - text.size() % kLengthBytes) % kLengthBytes, ' ');

  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + text;
}

absl::StatusOr<int64_t> SafetensorsHeaderBytes(std::string_view begin, int64_t file_bytes) {
  if (file_bytes < kSafetensorsLengthBytes || begin.size() < kLengthBytes) {
    return Bad(absl::StrCat("it has only ", file_bytes, " bytes"));
  }
  uint64_t length = 0;
  std::memcpy(&length, begin.data(), sizeof(length));
  if (length > kMaxHeader || length > static_cast<uint64_t>(file_bytes - kSafetensorsLengthBytes)) {
    return Bad(absl::StrCat("its header of ", length, " bytes does not fit"));
  }
  return kSafetensorsLengthBytes + static_cast<int64_t>(length);
}

absl::StatusOr<SafetensorsHeader> ReadSafetensorsHeader(std::string_view begin, int64_t file_bytes) {
  TANDEM_ASSIGN_OR_RETURN(const int64_t header_bytes, SafetensorsHeaderBytes(begin, file_bytes));
  const std::string_view text = begin.substr(kLengthBytes, static_cast<size_t>(header_bytes) - kLengthBytes);
  const int64_t buffer_bytes = file_bytes - header_bytes;
  if (text.empty() || text[0] != '{') {
    return Bad("its header does not begin with {");
  }
  DuplicateFinder duplicates;
  const ReadJson header =
      ReadJson::parse(text.begin(), text.end(), std::ref(duplicates), /*allow_exceptions=*/false);
  if (header.is_discarded() || !header.is_object()) {
    return Bad("its header is not JSON");
  }
  if (!duplicates.duplicate().empty()) {
    return Bad("the name '" + duplicates.duplicate() + "' appears twice");
  }

  SafetensorsHeader file;
  std::vector<Entry> entries;
  for (const auto& [name, json] : header.items()) {
    if (name == kMetadata) {
      if (!json.is_object()) {
        return Bad("its metadata is not an object");
      }
      for (const auto& [key, value] : json.items()) {
        if (!value.is_string()) {
          return Bad("its metadata '" + key + "' is not a string");
        }
        file.metadata[key] = value.get<std::string>();
      }
      continue;
    }
    TensorPlace tensor;
    TANDEM_ASSIGN_OR_RETURN(const Entry entry, ReadEntry(name, json, tensor));
    if (entry.end > buffer_bytes) {
      return Bad(absl::StrCat("tensor '", name, "' ends at ", entry.end, ", the buffer at ", buffer_bytes));
    }
    tensor.begin = header_bytes + entry.begin;
    tensor.end = header_bytes + entry.end;
    file.tensors.emplace(name, std::move(tensor));
    entries.push_back(entry);
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  int64_t covered = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != covered) {
      return Bad(absl::StrCat("tensor '", entry.name, "' begins at ", entry.begin,
                              ", the one before it ends at ", covered));
    }
    covered = entry.end;
  }
  if (covered != buffer_bytes) {
    return Bad(absl::StrCat(buffer_bytes - covered, " bytes at its end belong to no tensor"));
  }
  return file;
}

}  // namespace tandem::checkpoint
