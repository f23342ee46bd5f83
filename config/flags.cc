// SPDX-License-Identifier: Apache-2.0
#include "config/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "config/config_file.h"
#include "platform/files.h"
#include "platform/shown_text.h"
#include "tls/tls_files.h"

namespace tandem::config {
namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;
constexpr int64_t kMostBytes = 1 << 20;

// What the command line says about flags, before it is parsed: their names, and the config file.
struct CommandLine {
  std::set<std::string> flags;  // without "--"
  std::optional<std::string> config;
};

CommandLine Look(int argc, const char* const* argv) {
  CommandLine out;
  for (int i = 1; i < argc; ++i) {
    std::string_view word = argv[i];
    if (word == "-h") {
      out.flags.insert("help");
    }
    if (!word.starts_with("--")) {
      continue;
    }
    word.remove_prefix(2);
    const size_t equals = word.find('=');
    const std::string name(word.substr(0, equals));
    out.flags.insert(name);
    if (name == "config") {
      if (equals != std::string_view::npos) {
        out.config = word.substr(equals + 1);
      } else if (i + 1 < argc) {
        out.config = argv[i + 1];
      }
    }
  }
  return out;
}

// Returns the keys that a file may have: all flags of the command line except these.
std::vector<std::string> Keys(const CLI::App& app) {
  std::vector<std::string> out;
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_single_name();
    if (name != "help" && name != "version" && name != "config") {
      out.push_back(name);
    }
  }
  return out;
}

// Returns CLI11's message without the flag's name, which the caller has written before it.
std::string Sentence(std::string_view what, const std::string& key) {
  const std::string name = absl::StrCat("--", key, ": ");
  if (what.starts_with(name)) {
    what.remove_prefix(name.size());
  }
  std::string out = platform::Shown(what, 300);
  if (!out.empty()) {
    out[0] = absl::ascii_tolower(static_cast<unsigned char>(out[0]));
  }
  return out;
}

// Passes a setting to `option`. Returns why it is refused; empty if it is not.
std::string Take(const Setting& setting, CLI::Option& option) {
  if (std::find(setting.values.begin(), setting.values.end(), "") != setting.values.end()) {
    return "its value is empty; omit the line to get the default";
  }
  if (setting.list && option.get_items_expected_max() <= 1) {
    return "a list is given, and this flag takes one value";
  }
  try {
    for (const std::string& value : setting.values) {
      option.add_result(value);
    }
    option.run_callback();
    return "";
  } catch (const CLI::ConversionError&) {
    return absl::StrCat("\"", platform::Shown(absl::StrJoin(setting.values, ", ")),
                        "\" is not a value of this flag; see --help");
  } catch (const CLI::ParseError& error) {
    return Sentence(error.what(), setting.key);
  }
}

// Applies the text of the file that --config names to `app`. Returns what is wrong with it, a line each, in
// its order; if nothing is wrong, `app` has its settings.
std::vector<std::string> Apply(CLI::App& app, const CommandLine& line, const std::string& text) {
  ConfigFile file = ReadConfigText(text);
  const std::vector<std::string> keys = Keys(app);
  for (const Setting& setting : file.settings) {
    if (std::find(keys.begin(), keys.end(), setting.key) == keys.end()) {
      file.problems.push_back(
          ProblemWith(setting, absl::StrCat("there is no such flag; allowed: ", absl::StrJoin(keys, ", "))));
      continue;
    }
    CLI::Option& option = *app.get_option("--" + setting.key);
    const std::string why = Take(setting, option);
    if (!why.empty()) {
      file.problems.push_back(ProblemWith(setting, why));
    }
    if (!why.empty() || line.flags.contains(setting.key)) {
      option.clear();
    }
  }
  std::stable_sort(file.problems.begin(), file.problems.end(),
                   [](const Problem& a, const Problem& b) { return a.line < b.line; });
  std::vector<std::string> out;
  for (const Problem& problem : file.problems) {
    out.push_back(problem.In(*line.config));
  }
  return out;
}

void Say(const CLI::App& app, const std::string& line) {
  std::fprintf(stderr, "%s: %s\n", app.get_name().c_str(), line.c_str());
}

int RefuseAll(const CLI::App& app, const std::vector<std::string>& lines) {
  for (const std::string& line : lines) {
    Say(app, line);
  }
  return kUsage;
}

}  // namespace

int Refuse(const CLI::App& app, const std::string& line) {
  Say(app, line);
  return kUsage;
}

void AddTlsFlags(CLI::App& app, tls::TlsFiles& files) {
  app.add_option("--tls-ca", files.ca,
                 "CA certificates (PEM) that sign the other side's certificate; turns TLS on")
      ->type_name("FILE");
  app.add_option("--tls-cert", files.certificate,
                 "This daemon's certificate chain (PEM), without the CA's own certificate")
      ->type_name("FILE");
  app.add_option("--tls-key", files.key, "Key of --tls-cert (PEM); other users must not be able to read it")
      ->type_name("FILE");
}

std::vector<std::string> EmptyValues(const CLI::App& app) {
  std::vector<std::string> out;
  for (const CLI::Option* option : app.get_options()) {
    const std::vector<std::string>& values = option->results();
    if (std::find(values.begin(), values.end(), "") != values.end()) {
      out.push_back(absl::StrCat(option->get_lnames().empty() ? "" : "--", option->get_single_name(),
                                 ": its value is empty; give one, or omit it"));
    }
  }
  for (const CLI::App* command : app.get_subcommands()) {
    const std::vector<std::string> more = EmptyValues(*command);
    out.insert(out.end(), more.begin(), more.end());
  }
  return out;
}

std::optional<int> ParseFlags(CLI::App& app, int argc, const char* const* argv) {
  std::string config;
  app.add_option("--config", config,
                 "YAML file of flags, `slots: 4` for --slots 4; the command line overrides it")
      ->type_name("FILE");
  const CommandLine line = Look(argc, argv);
  const bool asks = line.flags.contains("help") || line.flags.contains("version");
  if (line.config.has_value() && !asks) {
    if (line.config->empty()) {  // a variable that is not set, in quotes
      return Refuse(app, "--config: its path is empty; name a file, or omit the flag");
    }
    const absl::StatusOr<std::string> text =
        platform::ReadAtMost(platform::SystemFiles(), *line.config, kMostBytes);
    if (!text.ok()) {
      Say(app, absl::StrCat("--config: ", std::string(text.status().message())));
      return kFailed;
    }
    if (const std::vector<std::string> problems = Apply(app, line, *text); !problems.empty()) {
      return RefuseAll(app, problems);
    }
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {
      return app.exit(error);  // help and version, which are "errors" of code 0
    }
    return Refuse(app, absl::StrCat(platform::Shown(error.what(), 500), "; see ", app.get_name(), " --help"));
  }
  const std::vector<std::string> empty = EmptyValues(app);
  return empty.empty() ? std::nullopt : std::optional(RefuseAll(app, empty));
}

}  // namespace tandem::config
