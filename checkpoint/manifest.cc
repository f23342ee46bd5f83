// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/manifest.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"
#include "platform/xxh3.h"

namespace tandem::checkpoint {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kFormat[] = "tandem-checkpoint";
constexpr std::string_view kPrefix = "{\"xxh3_128\": \"";
constexpr size_t kDigits = 32;
constexpr std::string_view kBehindDigest = "\",";

absl::Status Damaged(const std::string& reason) {
  return absl::InvalidArgumentError(absl::StrCat(kManifestName, ": ", reason));
}

Json ToJson(const Manifest& manifest) {
  Json files = Json::array();
  for (const ManifestFile& file : manifest.files) {
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"xxh3_128", file.digest}});
  }
  Json arrays = Json::array();
  for (const ManifestArray& array : manifest.arrays) {
    Json pieces = Json::array();
    for (const ManifestPiece& piece : array.pieces) {
      pieces.push_back({{"file", piece.file}, {"begin", piece.begin}, {"elements", piece.elements}});
    }
    arrays.push_back({{"name", array.name},
                      {"dtype", array.dtype},
                      {"elements", array.elements},
                      {"pieces", std::move(pieces)}});
  }
  Json json = {{"format", kFormat},
               {"version", manifest.version},
               {"step", manifest.info.step},
               {"attempt", manifest.info.attempt},
               {"job", manifest.info.job},
               {"spec_digest", manifest.info.spec_digest},
               {"layout_digest", manifest.info.layout_digest}};
  // Left out where it is not known, so that a manifest that is read and written again keeps its digest.
  if (manifest.info.seed) {
    json["seed"] = *manifest.info.seed;
  }
  if (!manifest.info.data_digest.empty()) {
    json["data_digest"] = manifest.info.data_digest;
  }
  if (!manifest.info.data_content_digest.empty()) {
    json["data_content_digest"] = manifest.info.data_content_digest;
  }
  if (!manifest.info.model.empty()) {
    json["model"] = Json::parse(manifest.info.model);
  }
  if (!manifest.info.training.empty()) {
    json["training"] = Json::parse(manifest.info.training);
  }
  if (manifest.info.global_batch_size > 0) {
    json["global_batch_size"] = manifest.info.global_batch_size;
  }
  if (manifest.info.sequence_length > 0) {
    json["sequence_length"] = manifest.info.sequence_length;
  }
  if (manifest.info.origin) {
    json["origin"] = {
        {"kind", "weights"}, {"path", manifest.info.origin->path}, {"digest", manifest.info.origin->digest}};
  }
  if (manifest.info.skipped_steps > 0) {
    json["skipped_steps"] = manifest.info.skipped_steps;
  }
  json["files"] = std::move(files);
  json["arrays"] = std::move(arrays);
  return json;
}

// Throws Json::exception where something is missing or of another type.
Manifest FromJson(const Json& json) {
  Manifest manifest;
  manifest.info = {.step = json.at("step").get<int64_t>(),
                   .attempt = json.at("attempt").get<int>(),
                   .job = json.at("job").get<std::string>(),
                   .spec_digest = json.at("spec_digest").get<std::string>(),
                   .layout_digest = json.at("layout_digest").get<std::string>()};
  if (json.contains("seed")) {
    manifest.info.seed = json.at("seed").get<uint64_t>();
  }
  if (json.contains("data_digest")) {
    manifest.info.data_digest = json.at("data_digest").get<std::string>();
  }
  if (json.contains("data_content_digest")) {
    manifest.info.data_content_digest = json.at("data_content_digest").get<std::string>();
  }
  if (json.contains("model")) {
    manifest.info.model = Json(json.at("model").get_ref<const Json::object_t&>()).dump();
  }
  if (json.contains("training")) {
    manifest.info.training = Json(json.at("training").get_ref<const Json::object_t&>()).dump();
  }
  if (json.contains("global_batch_size")) {
    manifest.info.global_batch_size = json.at("global_batch_size").get<int64_t>();
  }
  if (json.contains("sequence_length")) {
    manifest.info.sequence_length = json.at("sequence_length").get<int64_t>();
  }
  if (json.contains("origin")) {
    const Json& origin = json.at("origin");
    manifest.info.origin = {.path = origin.at("path").get<std::string>(),
                            .digest = origin.at("digest").get<std::string>()};
  }
  if (json.contains("skipped_steps")) {
    manifest.info.skipped_steps = json.at("skipped_steps").get<int64_t>();
  }
  for (const Json& file : json.at("files")) {
    manifest.files.push_back({.name = file.at("name").get<std::string>(),
                              .bytes = file.at("bytes").get<int64_t>(),
                              .digest = file.at("xxh3_128").get<std::string>()});
  }
  for (const Json& array : json.at("arrays")) {
    ManifestArray& read = manifest.arrays.emplace_back();
    read.name = array.at("name").get<std::string>();
    read.dtype = array.at("dtype").get<std::string>();
    read.elements = array.at("elements").get<int64_t>();
    for (const Json& piece : array.at("pieces")) {
      read.pieces.push_back({.file = piece.at("file").get<int>(),
                             .begin = piece.at("begin").get<int64_t>(),
                             .elements = piece.at("elements").get<int64_t>()});
    }
  }
  return manifest;
}

}  // namespace

ManifestText WriteManifest(const Manifest& manifest) {
  // The dump begins with '{': what follows it goes behind the digest.
  const std::string rest = ToJson(manifest).dump(1).substr(1) + "\n";
  const std::string digest = platform::Xxh3Of(rest);
  return {.text = absl::StrCat(absl::string_view(kPrefix.data(), kPrefix.size()), digest,
                               absl::string_view(kBehindDigest.data(), kBehindDigest.size()), rest),
          .digest = digest};
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
      return Damaged(absl::StrCat("it is of version ", version, ", this build reads versions ",
                                  kOldestManifestVersion, " to ", kManifestVersion,
                                  "; use the build that wrote it or a newer one"));
    }
    Manifest manifest = FromJson(json);
    manifest.version = static_cast<int>(version);
    manifest.digest = std::string(text.substr(kPrefix.size(), kDigits));
    TANDEM_RETURN_IF_ERROR(CheckCoverage(manifest));
    return manifest;
  } catch (const Json::exception& error) {
    return Damaged(error.what());
  }
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
  for (ManifestArray& array : manifest.arrays) {
    std::sort(array.pieces.begin(), array.pieces.end(),
              [](const ManifestPiece& a, const ManifestPiece& b) { return a.begin < b.begin; });
    int64_t covered = 0;
    for (const ManifestPiece& piece : array.pieces) {
      if (piece.file < 0 || piece.file >= static_cast<int>(manifest.files.size())) {
        return Damaged(
            absl::StrCat("array ", array.name, " lies in file ", piece.file, ", which is not listed"));
      }
      if (piece.begin != covered || piece.elements <= 0) {
        return Damaged(absl::StrCat("array ", array.name, " has a piece at element ", piece.begin,
                                    " where one must begin at ", covered));
      }
      if (__builtin_add_overflow(covered, piece.elements, &covered)) {
        return Damaged("array " + array.name + " has more than 2^63 elements");
      }
    }
    if (covered != array.elements) {
      return Damaged(absl::StrCat("array ", array.name, " has ", array.elements,
                                  " elements, its pieces cover ", covered));
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem::checkpoint
