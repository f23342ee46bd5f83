// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/manifest.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "platform/status_macros.h"
#include "platform/xxh3.h"

namespace tandem::checkpoint {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kFormat[] = "tandem-checkpoint";
constexpr std::string_view kPrefix = "{\"xxh3_128\": \"";
constexpr size_t kDigits = 32;
constexpr std::array kKinds = {kWeight, kExpAvg, kExpAvgSq, kMomentum, kState};
constexpr std::string_view kBehindDigest = "\",";

absl::Status Damaged(const std::string& reason) {
  return absl::InvalidArgumentError(absl::StrCat(kManifestName, ": ", reason));
}

Json ToJson(const ManifestPiece& piece) {
  Json json = {{"file", piece.file}};
  for (const fsdp::Range& range : piece.slice) {
    json["slice"].push_back({range.begin, range.end});
  }
  json["begin"] = piece.begin;
  json["elements"] = piece.elements;
  if (!piece.digest.empty()) {
    json["xxh3_128"] = piece.digest;
  }
  return json;
}

Json FilesJson(const Manifest& manifest) {
  Json files = Json::array();
  for (const ManifestFile& file : manifest.files) {
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"xxh3_128", file.digest}});
  }
  return files;
}

Json ArraysJson(const Manifest& manifest) {
  Json arrays = Json::array();
  for (const ManifestArray& array : manifest.arrays) {
    Json pieces = Json::array();
    for (const ManifestPiece& piece : array.pieces) {
      pieces.push_back(ToJson(piece));
    }
    arrays.push_back({{"name", array.name},
                      {"kind", array.kind},
                      {"dtype", array.dtype},
                      {"shape", array.shape},
                      {"pieces", std::move(pieces)}});
  }
  return arrays;
}

Json DataJson(const std::vector<DataSegment>& data) {
  Json segments = Json::array();
  for (const DataSegment& segment : data) {
    Json sources = Json::array();
    for (const TextPosition& source : segment.sources) {
      sources.push_back({{"name", source.name},
                         {"digest", source.digest},
                         {"weight", source.weight},
                         {"windows", source.windows},
                         {"first", source.first},
                         {"taken", source.taken}});
    }
    segments.push_back({{"from_step", segment.from_step},
                        {"from_sample", segment.from_sample},
                        {"global_batch_size", segment.global_batch_size},
                        {"sequence_length", segment.sequence_length},
                        {"seed", segment.seed},
                        {"shuffle", segment.shuffles},
                        {"sources", std::move(sources)}});
  }
  return segments;
}

// Writes a member of Info, unless it has the default, as which a missing member is read.
template <typename Value>
void Add(const char* key, const Value& value, Json& json) {
  if (value != Value()) {
    json[key] = value;
  }
}

// Writes a member whose text is a JSON object, unless it is empty.
void AddObject(const char* key, const std::string& text, Json& json) {
  if (!text.empty()) {
    json[key] = Json::parse(text);
  }
}

Json ToJson(const Manifest& manifest) {
  Json json = {{"format", kFormat},
               {"version", kManifestVersion},
               {"step", manifest.info.step},
               {"attempt", manifest.info.attempt},
               {"job", manifest.info.job},
               {"spec_digest", manifest.info.spec_digest},
               {"parameters_digest", manifest.info.parameters_digest}};
  if (manifest.info.seed) {
    json["seed"] = *manifest.info.seed;
  }
  Add("data_digest", manifest.info.data_digest, json);
  Add("data_content_digest", manifest.info.data_content_digest, json);
  AddObject("model", manifest.info.model, json);
  AddObject("training", manifest.info.training, json);
  Add("global_batch_size", manifest.info.global_batch_size, json);
  Add("sequence_length", manifest.info.sequence_length, json);
  if (!manifest.info.data.empty()) {
    json["data"] = DataJson(manifest.info.data);
  }
  if (manifest.info.origin) {
    json["origin"] = {
        {"kind", "weights"}, {"path", manifest.info.origin->path}, {"digest", manifest.info.origin->digest}};
  }
  Add("skipped_steps", manifest.info.skipped_steps, json);
  for (const StepNorm& norm : manifest.info.norms) {
    json["norms"].push_back({norm.step, norm.norm});
  }
  AddObject("pending_report", manifest.info.pending_report, json);
  json["files"] = FilesJson(manifest);
  json["arrays"] = ArraysJson(manifest);
  return json;
}

// Version 2 has no shapes and no kinds.
void ReadArrayOfVersion2(const Json& json, ManifestArray& array) {
  const std::string tensor = array.name;
  array.shape = {json.at("elements").get<int64_t>()};
  array.name = tensor.substr(0, tensor.find('/'));
  array.kind = tensor.size() > array.name.size()   ? tensor.substr(array.name.size() + 1)
               : absl::EndsWith(tensor, ".weight") ? kWeight
                                                   : kState;
}

ManifestPiece PieceFromJson(const Json& json) {
  ManifestPiece piece{.file = json.at("file").get<int>(),
                      .begin = json.at("begin").get<int64_t>(),
                      .elements = json.at("elements").get<int64_t>()};
  if (json.contains("xxh3_128")) {
    piece.digest = json.at("xxh3_128").get<std::string>();
  }
  if (json.contains("slice")) {
    for (const auto& [begin, end] : json.at("slice").get<std::vector<std::array<int64_t, 2>>>()) {
      piece.slice.push_back({.begin = begin, .end = end});
    }
  }
  return piece;
}

// Throws Json::exception, as ReadInfo does, if something is missing or has another type.
void ReadContents(const Json& json, int64_t version, Manifest& manifest) {
  for (const Json& file : json.at("files")) {
    manifest.files.push_back({.name = file.at("name").get<std::string>(),
                              .bytes = file.at("bytes").get<int64_t>(),
                              .digest = file.at("xxh3_128").get<std::string>()});
  }
  for (const Json& array : json.at("arrays")) {
    ManifestArray& read = manifest.arrays.emplace_back();
    read.name = array.at("name").get<std::string>();
    read.dtype = array.at("dtype").get<std::string>();
    if (version == 2) {
      ReadArrayOfVersion2(array, read);
    } else {
      read.kind = array.at("kind").get<std::string>();
      read.shape = array.at("shape").get<fsdp::Shape>();
    }
    for (const Json& piece : array.at("pieces")) {
      read.pieces.push_back(PieceFromJson(piece));
    }
  }
}

std::vector<DataSegment> ReadData(const Json& json) {
  std::vector<DataSegment> data;
  for (const Json& segment : json.get_ref<const Json::array_t&>()) {
    DataSegment& read = data.emplace_back();
    read.from_step = segment.at("from_step").get<int64_t>();
    read.from_sample = segment.at("from_sample").get<int64_t>();
    read.global_batch_size = segment.at("global_batch_size").get<int64_t>();
    read.sequence_length = segment.at("sequence_length").get<int64_t>();
    read.seed = segment.at("seed").get<uint64_t>();
    read.shuffles = segment.at("shuffle").get<bool>();
    for (const Json& source : segment.at("sources").get_ref<const Json::array_t&>()) {
      read.sources.push_back({.name = source.at("name").get<std::string>(),
                              .digest = source.at("digest").get<std::string>(),
                              .weight = source.at("weight").get<int64_t>(),
                              .windows = source.at("windows").get<int64_t>(),
                              .first = source.at("first").get<int64_t>(),
                              .taken = source.at("taken").get<int64_t>()});
    }
  }
  return data;
}

// Reads a member that checkpoints of older builds lack.
template <typename Value>
void ReadIfThere(const Json& json, const char* key, Value& value) {
  if (json.contains(key)) {
    value = json.at(key).get<Value>();
  }
}

// Reads such a member that is a JSON object, as text.
void ReadObjectIfThere(const Json& json, const char* key, std::string& text) {
  if (json.contains(key)) {
    text = Json(json.at(key).get_ref<const Json::object_t&>()).dump();
  }
}

Info ReadInfo(const Json& json, int64_t version) {
  Info info{.step = json.at("step").get<int64_t>(),
            .attempt = json.at("attempt").get<int>(),
            .job = json.at("job").get<std::string>(),
            .spec_digest = json.at("spec_digest").get<std::string>(),
            .parameters_digest = version == 2 ? "" : json.at("parameters_digest").get<std::string>()};
  if (json.contains("seed")) {
    info.seed = json.at("seed").get<uint64_t>();
  }
  ReadIfThere(json, "data_digest", info.data_digest);
  ReadIfThere(json, "data_content_digest", info.data_content_digest);
  ReadObjectIfThere(json, "model", info.model);
  ReadObjectIfThere(json, "training", info.training);
  ReadIfThere(json, "global_batch_size", info.global_batch_size);
  ReadIfThere(json, "sequence_length", info.sequence_length);
  if (json.contains("data")) {
    info.data = ReadData(json.at("data"));
  }
  if (json.contains("origin")) {
    const Json& origin = json.at("origin");
    info.origin = {.path = origin.at("path").get<std::string>(),
                   .digest = origin.at("digest").get<std::string>()};
  }
  ReadIfThere(json, "skipped_steps", info.skipped_steps);
  if (json.contains("norms")) {
    for (const Json& norm : json.at("norms").get_ref<const Json::array_t&>()) {
      info.norms.push_back({.step = norm.at(0).get<int64_t>(), .norm = norm.at(1).get<double>()});
    }
  }
  ReadObjectIfThere(json, "pending_report", info.pending_report);
  return info;
}

// Checks the pieces of one slice, which are sorted.
absl::Status CheckPieces(const ManifestArray& array, const std::string& named,
                         std::vector<ManifestPiece>::const_iterator begin,
                         std::vector<ManifestPiece>::const_iterator end) {
  int64_t covered = 0;
  for (auto piece = begin; piece != end; ++piece) {
    if (piece->begin != covered || piece->elements <= 0) {
      return Damaged(absl::StrCat(named, " has a piece at element ", piece->begin,
                                  " where one must begin at ", covered));
    }
    if (__builtin_add_overflow(covered, piece->elements, &covered)) {
      return Damaged(named + " has more than 2^63 elements");
    }
  }
  if (const int64_t elements = fsdp::NumElements(array.shape, begin->slice); covered != elements) {
    return Damaged(absl::StrCat(named, " has ", elements, " elements",
                                begin->slice.empty() ? "" : " in a slice", ", its pieces cover ", covered));
  }
  return absl::OkStatus();
}

// Checks an array whose pieces are sorted.
absl::Status CheckSlices(const ManifestArray& array, const std::string& named, int64_t elements) {
  std::vector<fsdp::Slice> slices;
  int64_t covered = 0;
  for (auto piece = array.pieces.begin(); piece != array.pieces.end();) {
    const fsdp::Slice& slice = piece->slice;
    const auto end = std::find_if(piece, array.pieces.end(),
                                  [&](const ManifestPiece& other) { return other.slice != slice; });
    TANDEM_RETURN_IF_ERROR(CheckPieces(array, named, piece, end));
    if (std::any_of(slices.begin(), slices.end(),
                    [&](const fsdp::Slice& other) { return fsdp::Overlap(array.shape, slice, other); })) {
      return Damaged(named + " has slices that overlap");
    }
    slices.push_back(slice);
    if (slices.size() > kMostSlices) {
      return Damaged(absl::StrCat(named, " has more than ", kMostSlices, " slices"));
    }
    covered += fsdp::NumElements(array.shape, slice);
    piece = end;
  }
  if (covered != elements) {
    return Damaged(absl::StrCat(named, " has ", elements, " elements, its pieces cover ", covered));
  }
  return absl::OkStatus();
}

absl::Status CheckArray(ManifestArray& array, size_t files) {
  const std::string named = "array " + TensorName(array.name, array.kind);
  if (std::find(kKinds.begin(), kKinds.end(), array.kind) == kKinds.end()) {
    return Damaged(
        absl::StrCat(named, " is of kind ", array.kind, ", which is none of ", absl::StrJoin(kKinds, ", ")));
  }
  const std::optional<int64_t> elements = fsdp::NumElements(array.shape);
  if (!elements) {
    return Damaged(absl::StrCat(named, " cannot have the shape ", ShapeText(array.shape)));
  }
  std::set<int> seen;
  for (const ManifestPiece& piece : array.pieces) {
    if (piece.file < 0 || piece.file >= static_cast<int>(files)) {
      return Damaged(absl::StrCat(named, " lies in file ", piece.file, ", which is not listed"));
    }
    if (!seen.insert(piece.file).second) {
      return Damaged(absl::StrCat(named, " has two pieces in file ", piece.file));
    }
    if (!fsdp::IsSliceOf(array.shape, piece.slice)) {
      return Damaged(
          absl::StrCat(named, " has a slice that is not within its shape ", ShapeText(array.shape)));
    }
  }
  std::sort(array.pieces.begin(), array.pieces.end(), [](const ManifestPiece& a, const ManifestPiece& b) {
    return std::tie(a.slice, a.begin) < std::tie(b.slice, b.begin);
  });
  return CheckSlices(array, named, *elements);
}

}  // namespace

std::string TensorName(const std::string& name, const std::string& kind) {
  return kind == kWeight || kind == kState ? name : absl::StrCat(name, "/", kind);
}

bool Holds(const ManifestArray& array, const fsdp::Shape& shape) {
  const bool is_flat = array.shape.size() == 1 && !array.pieces.empty() && array.pieces[0].slice.empty();
  return array.shape == shape || (is_flat && fsdp::NumElements(shape) == array.shape[0]);
}

std::string ShapeText(const fsdp::Shape& shape) { return absl::StrCat("[", absl::StrJoin(shape, ", "), "]"); }

ManifestText WriteManifest(const Manifest& manifest) {
  // The dump begins with '{', which precedes the digest; the rest follows it.
  const std::string rest = ToJson(manifest).dump(1).substr(1) + "\n";
  const std::string digest = platform::Xxh3Of(rest);
  return {.text = absl::StrCat(absl::string_view(kPrefix.data(), kPrefix.size()), digest,
                               absl::string_view(kBehindDigest.data(), kBehindDigest.size()), rest),
          .digest = digest};
}

std::string ContentsText(const Manifest& manifest) {
  return Json{{"files", FilesJson(manifest)}, {"arrays", ArraysJson(manifest)}}.dump();
}

Manifest ContentsOf(std::string_view text) {
  Manifest manifest;
  ReadContents(Json::parse(text), kManifestVersion, manifest);
  return manifest;
}

absl::StatusOr<Manifest> ReadManifest(std::string_view text) {
  const size_t begin = kPrefix.size() + kDigits + kBehindDigest.size();
  if (text.size() < begin || text.substr(0, kPrefix.size()) != kPrefix ||
      text.substr(kPrefix.size() + kDigits, kBehindDigest.size()) != kBehindDigest) {
    return Damaged("it does not begin with its digest");
  }
  if (platform::Xxh3Of(text.substr(begin)) != text.substr(kPrefix.size(), kDigits)) {
    return Damaged("its digest does not match");
  }
  const Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  try {
    if (!json.is_object() || json.at("format") != kFormat) {
      return Damaged("it is not a checkpoint's manifest");
    }
    const auto version = json.at("version").get<int64_t>();
    if (version < kOldestManifestVersion || version > kManifestVersion) {
      const bool is_newer = version > kManifestVersion;
      const std::string reason =
          absl::StrCat("it is of version ", version, ", this build reads versions ", kOldestManifestVersion,
                       " to ", kManifestVersion, "; ",
                       is_newer ? "use the build that wrote it or a newer one"
                                : "resume from it once with a build that reads it and writes version 2");
      return is_newer ? absl::UnimplementedError(absl::StrCat(kManifestName, ": ", reason)) : Damaged(reason);
    }
    Manifest manifest{.info = ReadInfo(json, version)};
    ReadContents(json, version, manifest);
    manifest.digest = std::string(text.substr(kPrefix.size(), kDigits));
    TANDEM_RETURN_IF_ERROR(CheckCoverage(manifest));
    return manifest;
  } catch (const Json::exception& error) {
    return Damaged(error.what());
  }
}

int64_t TotalBytes(const std::vector<ManifestFile>& files) {
  return std::accumulate(files.begin(), files.end(), int64_t{0},
                         [](int64_t sum, const ManifestFile& file) { return sum + file.bytes; });
}

absl::Status CheckCoverage(Manifest& manifest) {
  int64_t bytes = 0;
  for (const ManifestFile& file : manifest.files) {
    if (file.bytes < 0 || __builtin_add_overflow(bytes, file.bytes, &bytes)) {
      return Damaged("its files cannot have the sizes that it says");
    }
    if (file.name.empty() || file.name[0] == '.' || absl::StrContains(file.name, "/")) {
      return Damaged("'" + file.name + "' is not the name of a file in its folder");
    }
  }
  std::set<std::string> names;
  for (ManifestArray& array : manifest.arrays) {
    TANDEM_RETURN_IF_ERROR(CheckArray(array, manifest.files.size()));
    if (const std::string name = TensorName(array.name, array.kind); !names.insert(name).second) {
      return Damaged("array " + name + " appears twice");
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem::checkpoint
