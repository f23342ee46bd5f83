// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"
#include "schedules/simulate/device_profile.h"

namespace tandem::schedules {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kMax = 1e30;

// Reads the keys of one object, each at most once, and keeps the first thing that is wrong. Done() refuses
// what was not read.
class ObjectReader {
 public:
  // path: of the object, for messages; empty for the whole file. `error` outlives it.
  ObjectReader(const Json& json, std::string path, std::string& error)
      : json_(json), path_(std::move(path)), error_(error) {
    if (!json.is_object()) {
      Refuse(path_, "is not an object", "an object {...}");
    }
  }

  const Json* Find(const std::string& key) {
    known_.push_back(key);
    if (!error_.empty()) {
      return nullptr;
    }
    const auto it = json_.find(key);
    return it == json_.end() ? nullptr : &*it;
  }

  void Text(const std::string& key, bool required, std::string& value) {
    if (const Json* found = Require(key, required)) {
      if (found->is_string() && !(required && found->get_ref<const std::string&>().empty())) {
        value = found->get<std::string>();
      } else {
        Refuse(Path(key), absl::StrCat(Short(*found), " is not allowed"), required ? "a name" : "text");
      }
    }
  }

  // A number from least, which is allowed unless `above`, up to most, which is not.
  void Number(const std::string& key, bool required, bool above, double most, double& value) {
    if (const Json* found = Require(key, required)) {
      const double number = found->is_number() ? found->get<double>() : NAN;
      if (number >= 0 && (!above || number > 0) && number < most) {
        value = number;
      } else {
        Refuse(Path(key), absl::StrCat(Short(*found), " is not allowed"),
               absl::StrCat(above ? "a number > 0" : "a number ≥ 0",
                            most < kMax ? absl::StrCat(" and < ", most) : ""));
      }
    }
  }

  template <typename Int>
  void Integer(const std::string& key, int64_t least, int64_t most, Int& value) {
    if (const Json* found = Find(key)) {
      const bool fits = found->is_number_integer() && (!found->is_number_unsigned() ||
                                                       found->get<uint64_t>() <= static_cast<uint64_t>(most));
      if (fits && found->get<int64_t>() >= least && found->get<int64_t>() <= most) {
        value = found->get<Int>();
      } else {
        Refuse(Path(key), absl::StrCat(Short(*found), " is not allowed"),
               absl::StrCat("an integer from ", least, " to ", most));
      }
    }
  }

  void Done() {
    if (!error_.empty()) {
      return;
    }
    for (const auto& [key, value] : json_.items()) {
      if (std::find(known_.begin(), known_.end(), key) == known_.end()) {
        Refuse(Path(key), "is not a key of a device profile", absl::StrJoin(known_, ", "));
        return;
      }
    }
  }

  std::string Path(const std::string& key) const {
    return path_.empty() ? key : absl::StrCat(path_, ".", key);
  }

  void Refuse(const std::string& path, const std::string& what, const std::string& allowed) {
    if (error_.empty()) {
      error_ = absl::StrCat(path.empty() ? "the file" : path, path.empty() ? " " : ": ", what,
                            "; allowed: ", allowed);
    }
  }

 private:
  const Json* Require(const std::string& key, bool required) {
    const Json* found = Find(key);
    if (found == nullptr && required && error_.empty()) {
      error_ = absl::StrCat(Path(key), ": is missing; every profile gives it");
    }
    return found;
  }

  static std::string Short(const Json& value) {
    std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
    return text.size() > 40 ? text.substr(0, 37) + "..." : text;
  }

  const Json& json_;
  const std::string path_;
  std::string& error_;
  std::vector<std::string> known_;
};

void ReadCompute(ObjectReader& file, std::string& error, DeviceProfile& profile) {
  const Json* compute = file.Find("compute");
  if (compute == nullptr || !compute->is_object() || compute->empty()) {
    file.Refuse("compute", compute == nullptr ? "is missing" : "has no compute type",
                "an object like {\"fp32\": {\"flops_per_second\": 1e12}}");
    return;
  }
  for (const auto& [type, value] : compute->items()) {
    ObjectReader rate(value, file.Path("compute." + type), error);
    ComputeRate& result = profile.compute[type];
    rate.Number("flops_per_second", true, true, kMax, result.flops_per_second);
    rate.Number("peak_flops_per_second", false, false, kMax, result.peak_flops_per_second);
    rate.Done();
  }
}

void ReadLink(ObjectReader& file, const std::string& key, bool required, std::string& error,
              LinkRates& link) {
  const Json* found = file.Find(key);
  if (found == nullptr) {
    if (required) {
      file.Refuse(key, "is missing", "an object like {\"bytes_per_second\": 1e9}");
    }
    return;
  }
  ObjectReader reader(*found, key, error);
  reader.Integer("max_ranks", 0, 1 << 20, link.max_ranks);
  reader.Number("bytes_per_second", true, required, kMax, link.bytes_per_second);
  reader.Number("latency_seconds", false, false, kMax, link.latency_seconds);
  reader.Number("hop_seconds", false, false, kMax, link.hop_seconds);
  reader.Done();
}

void ReadMeasured(ObjectReader& file, std::string& error, DeviceProfile& profile) {
  const Json* found = file.Find("measured");
  if (found == nullptr) {
    return;
  }
  if (!found->is_array()) {
    file.Refuse("measured", "is not a list", "a list of objects");
    return;
  }
  for (size_t i = 0; i < found->size() && error.empty(); ++i) {
    ObjectReader reader((*found)[i], absl::StrCat("measured[", i, "]"), error);
    MeasuredTime& time = profile.measured.emplace_back();
    reader.Text("kind", true, time.kind);
    reader.Number("seconds", true, false, kMax, time.seconds);
    reader.Number("cpu_seconds", false, false, kMax, time.cpu_seconds);
    reader.Number("flops", false, false, kMax, time.work.flops);
    reader.Number("bytes", false, false, kMax, time.work.bytes);
    reader.Number("link_bytes", false, false, kMax, time.work.link_bytes);
    reader.Integer("ranks", 1, 1 << 20, time.work.ranks);
    reader.Integer("stride", 1, 1 << 20, time.work.stride);
    reader.Integer("samples", 0, int64_t{1} << 50, time.samples);
    reader.Done();
  }
  std::stable_sort(profile.measured.begin(), profile.measured.end(),
                   [](const MeasuredTime& a, const MeasuredTime& b) { return a.kind < b.kind; });
}

Json LinkJson(const LinkRates& link) {
  return {{"max_ranks", link.max_ranks},
          {"bytes_per_second", link.bytes_per_second},
          {"latency_seconds", link.latency_seconds},
          {"hop_seconds", link.hop_seconds}};
}

}  // namespace

std::string ProfileToJson(const DeviceProfile& profile) {
  Json json = {{"name", profile.name}, {"describe", profile.describe}, {"compute", Json::object()}};
  for (const auto& [type, rate] : profile.compute) {
    json["compute"][type] = {{"flops_per_second", rate.flops_per_second},
                             {"peak_flops_per_second", rate.peak_flops_per_second}};
  }
  json["memory_bytes_per_second"] = profile.memory_bytes_per_second;
  json["host_bytes_per_second"] = profile.host_bytes_per_second;
  json["memory_bytes"] = profile.memory_bytes;
  json["context_bytes"] = profile.context_bytes;
  json["communicator_bytes"] = profile.communicator_bytes;
  json["graph_pass_bytes"] = profile.graph_pass_bytes;
  json["launch_issue_seconds"] = profile.launch_issue_seconds;
  json["graph_issue_seconds"] = profile.graph_issue_seconds;
  json["overhead_seconds"] = profile.overhead_seconds;
  json["gap_seconds"] = profile.gap_seconds;
  json["wake_seconds"] = profile.wake_seconds;
  json["skew_seconds"] = profile.skew_seconds;
  json["link"] = LinkJson(profile.link);
  json["network"] = LinkJson(profile.network);
  json["cores"] = profile.cores;
  json["compute_slowdown"] = profile.compute_slowdown;
  json["measured"] = Json::array();
  for (const MeasuredTime& time : profile.measured) {
    json["measured"].push_back({{"kind", time.kind},
                                {"seconds", time.seconds},
                                {"cpu_seconds", time.cpu_seconds},
                                {"flops", time.work.flops},
                                {"bytes", time.work.bytes},
                                {"link_bytes", time.work.link_bytes},
                                {"ranks", time.work.ranks},
                                {"stride", time.work.stride},
                                {"samples", time.samples}});
  }
  return json.dump(1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n";
}

absl::StatusOr<DeviceProfile> ProfileFromJson(absl::string_view text) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) {
    return absl::InvalidArgumentError(
        "the file is not JSON; a device profile is what `tandem profile` writes, an object with name, "
        "compute, "
        "memory_bytes_per_second and link");
  }
  std::string error;
  ObjectReader file(json, "", error);
  DeviceProfile profile;
  const auto bytes = [&](const char* key, int64_t& value) {
    double number = 0;
    file.Number(key, false, false, 9e18, number);
    value = static_cast<int64_t>(number);
  };
  file.Text("name", true, profile.name);
  file.Text("describe", false, profile.describe);
  ReadCompute(file, error, profile);
  file.Number("memory_bytes_per_second", true, true, kMax, profile.memory_bytes_per_second);
  file.Number("host_bytes_per_second", false, false, kMax, profile.host_bytes_per_second);
  bytes("memory_bytes", profile.memory_bytes);
  bytes("context_bytes", profile.context_bytes);
  bytes("communicator_bytes", profile.communicator_bytes);
  bytes("graph_pass_bytes", profile.graph_pass_bytes);
  file.Number("launch_issue_seconds", false, false, kMax, profile.launch_issue_seconds);
  file.Number("graph_issue_seconds", false, false, kMax, profile.graph_issue_seconds);
  file.Number("overhead_seconds", false, false, kMax, profile.overhead_seconds);
  file.Number("gap_seconds", false, false, kMax, profile.gap_seconds);
  file.Number("wake_seconds", false, false, kMax, profile.wake_seconds);
  file.Number("skew_seconds", false, false, kMax, profile.skew_seconds);
  ReadLink(file, "link", true, error, profile.link);
  ReadLink(file, "network", false, error, profile.network);
  file.Number("cores", false, false, kMax, profile.cores);
  file.Number("compute_slowdown", false, false, 1, profile.compute_slowdown);
  ReadMeasured(file, error, profile);
  file.Done();
  if (!error.empty()) {
    return absl::InvalidArgumentError(error);
  }
  return profile;
}

}  // namespace tandem::schedules
