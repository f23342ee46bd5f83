// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/config_json.h"

#include <nlohmann/json.hpp>
#include <string_view>

#include "platform/shown_text.h"

namespace tandem::checkpoint {
namespace {

constexpr int kMostDepth = 32;

std::string WithoutInfinities(const std::string& text) {
  constexpr std::string_view kInfinity = "Infinity";
  std::string without;
  bool in_text = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (!in_text && text.compare(i, kInfinity.size(), kInfinity) == 0) {
      without += R"({"__float__": "Infinity"})";
      i += kInfinity.size() - 1;
      continue;
    }
    if (in_text && text[i] == '\\') {
      without += text[i++];
      if (i == text.size()) {
        break;
      }
    } else if (text[i] == '"') {
      in_text = !in_text;
    }
    without += text[i];
  }
  return without;
}

}  // namespace

template <typename Json>
absl::StatusOr<Json> ParseConfig(const std::string& text) {
  try {
    // The callback bounds the depth: the parser itself keeps a stack, but destroying a deep value recurses.
    Json config = Json::parse(WithoutInfinities(text), [](int depth, typename Json::parse_event_t, Json&) {
      return depth < kMostDepth;
    });
    if (config.is_object()) {
      return config;
    }
  } catch (const typename Json::exception& error) {
    return absl::InvalidArgumentError(platform::Shown(error.what(), 200));
  }
  return absl::InvalidArgumentError("it is not a JSON object");
}

template absl::StatusOr<nlohmann::json> ParseConfig(const std::string& text);
template absl::StatusOr<nlohmann::ordered_json> ParseConfig(const std::string& text);

}  // namespace tandem::checkpoint
