// SPDX-License-Identifier: Apache-2.0
#include "jobspec/json_end.h"

#include <algorithm>
#include <string>

#include "nlohmann/json.hpp"

namespace tandem::jobspec {
namespace {

using nlohmann::json;

// Keeps nothing of a text but where it breaks.
class EndFinder : public json::json_sax_t {
 public:
  size_t end() const { return end_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(json::number_integer_t) override { return true; }
  bool number_unsigned(json::number_unsigned_t) override { return true; }
  bool number_float(json::number_float_t, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(json::binary_t&) override { return true; }
  bool start_object(size_t) override { return true; }
  bool key(std::string&) override { return true; }
  bool end_object() override { return true; }
  bool start_array(size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(size_t position, const std::string&, const json::exception& error) override {
    if (dynamic_cast<const json::parse_error*>(&error) != nullptr) {
      end_ = std::max<size_t>(position, 1) - 1;
    }
    return false;
  }

 private:
  size_t end_ = std::string_view::npos;
};

}  // namespace

size_t EndOfJson(std::string_view text) {
  EndFinder finder;
  json::sax_parse(text, &finder);
  return finder.end();
}

}  // namespace tandem::jobspec
