// SPDX-License-Identifier: Apache-2.0
#include "jobspec/check_text_files.h"

#include <errno.h>
#include <fnmatch.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "data/file_kind.h"
#include "data/held_out.h"
#include "data/token_files.h"
#include "jobspec/data_texts.h"
#include "jobspec/schema.h"
#include "jobspec/text.h"
#include "platform/counted_text.h"
#include "platform/file_list.h"
#include "platform/shown_text.h"

namespace tandem::jobspec {
namespace {

// Whether the files of `pattern` would include those of checkpoints that are saved in `folder`.
bool WouldFind(const std::string& pattern, const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  const bool literal = fs::exists(pattern, error);
  const std::string glob = pattern.substr(0, pattern.find_last_not_of('/') + 1);
  const fs::path root = fs::weakly_canonical(pattern, error);
  const fs::path inner = fs::path(folder).lexically_normal() / "step-1" / "tensors";
  const fs::path deepest = literal ? fs::weakly_canonical(inner, error) : inner;
  for (fs::path path = deepest; path.has_relative_path(); path = path.parent_path()) {
    if (literal ? path == root : fnmatch(glob.c_str(), path.c_str(), FNM_PATHNAME | FNM_PERIOD) == 0) {
      return true;
    }
  }
  return false;
}

class TextChecker {
 public:
  TextChecker(const v1::JobSpec& spec, const BeforePath& before) : spec_(spec), before_(before) {}

  std::vector<v1::Violation> Run() {
    CheckText();
    return std::move(violations_);
  }

 private:
  void CheckText() {
    const v1::Data& data = spec_.data();
    std::vector<DataText> train = TrainingTexts(data);
    std::vector<DataText> held_out = ValidationTexts(data);
    for (std::vector<DataText>* texts : {&train, &held_out}) {
      std::erase_if(*texts, [&](const DataText& text) { return !before_(text.field, text.path); });
    }
    if (train.empty()) {
      for (const DataText& text : held_out) {
        if (!IsTokens(text)) {
          CheckData(text);
        }
      }
      return;
    }
    const DataText first = train[0];
    const bool tokens = IsTokens(first);
    for (std::vector<DataText>* texts : {&train, &held_out}) {
      std::erase_if(*texts, [&](const DataText& text) {
        const bool other = IsTokens(text) != tokens;
        if (other) {
          Refuse(text.field, text.path,
                 absl::StrCat(tokens ? "tokens, as " : "text, as ", first.field, " is"),
                 tokens ? "prepare it with the same tokenizer"
                        : absl::StrCat("prepare ", first.field, " too, or use text for both"));
        }
        return other;
      });
    }
    if (tokens) {
      for (v1::Violation& violation : CheckTokenFiles(spec_, train, held_out)) {
        violations_.push_back(std::move(violation));
      }
      return;
    }
    if (data.end_of_document() > 255) {
      Refuse("data.end_of_document", absl::StrCat(data.end_of_document()), "0 to 255 where bytes are tokens",
             "write the byte's number: 10 for a newline, 0 for NUL");
    }
    if (data.tokenizer() != "bytes" && spec_.model().has_vocab_size() && spec_.model().vocab_size() < 256) {
      Refuse("model.vocab_size", absl::StrCat(spec_.model().vocab_size()),
             "at least 256 where bytes are tokens", "a byte has 256 values: use 256");
    }
    std::vector<FilesOfText> trained;
    for (const DataText& text : train) {
      if (std::optional<FilesOfText> found = CheckData(text); found.has_value()) {
        CheckParts(text, SizesOf(*found));
        trained.push_back(*std::move(found));
      }
    }
    for (const DataText& text : held_out) {
      if (const std::optional<FilesOfText> found = CheckData(text); found.has_value()) {
        CheckApart(trained, *found, violations_);
      }
    }
    if (ValidatesOnEnds(spec_)) {
      CheckShared(trained, violations_);
    }
  }

  static bool IsTokens(const DataText& text) {
    return data::FormatOf(text.path, FormatOf(text)) != data::TextFormat::kBytes;
  }

  void Refuse(const std::string& path, const std::string& value, const std::string& allowed,
              const std::string& remedy) {
    violations_.push_back(MakeViolation(path, value, allowed, remedy));
  }

  static std::vector<data::NamedSize> SizesOf(const FilesOfText& text) {
    std::vector<data::NamedSize> sizes;
    for (const FoundFile& found : text.files) {
      sizes.push_back({.name = found.file.name, .size = found.bytes});
    }
    return sizes;
  }

  // The files that hold something, each once. Returns nothing if it has refused the text.
  std::optional<FilesOfText> CheckData(const DataText& named) {
    const std::string& path = named.field;
    const std::string& pattern = named.path;
    constexpr char kAllowed[] = "an existing file, folder or glob";
    const absl::StatusOr<std::vector<std::string>> paths = platform::ListFiles(pattern);
    if (!paths.ok()) {
      Refuse(path, pattern, kAllowed, std::string(paths.status().message()));
      return std::nullopt;
    }
    const std::string root = data::RootOf(pattern);
    FilesOfText text{.field = path, .path = pattern, .files = {}};
    int64_t bytes = 0;
    std::set<std::pair<dev_t, ino_t>> seen;  // a file of several names is one
    for (const std::string& file : *paths) {
      struct stat info;
      if (access(file.c_str(), R_OK) != 0 || stat(file.c_str(), &info) != 0) {
        Refuse(path, pattern, "files that can be read",
               absl::StrCat("cannot read ", platform::Shown(file, 200), ": ", strerror(errno)));
        return std::nullopt;
      }
      if (const std::string kind = data::KindOfNoText(file, "");
          !kind.empty() && info.st_size > 0 && FormatOf(named) != data::TextFormat::kBytes) {
        Refuse(path, pattern, "files of tokens, or of text",
               absl::StrCat(platform::Shown(file, 200), " is ", kind, ": ", data::kPrepareIt));
        return std::nullopt;
      }
      if (info.st_size > 0 && seen.insert({info.st_dev, info.st_ino}).second) {
        text.files.push_back(
            {.file = {.device = info.st_dev, .inode = info.st_ino, .name = data::NameBelow(root, file)},
             .path = file,
             .bytes = info.st_size});
        bytes += info.st_size;
      }
    }
    if (bytes < WindowOf(spec_)) {
      Refuse(path, pattern, WindowText(spec_, "bytes"),
             absl::StrCat("it holds ", platform::CountedText(bytes, "byte"), " in ",
                          platform::CountedText(paths->size(), "file"),
                          ": use more text, or shorter sequences"));
      return std::nullopt;
    }
    const std::string& directory = spec_.checkpoint().directory();
    if (!directory.empty() && WouldFind(pattern, directory)) {
      Refuse("checkpoint.directory", directory,
             absl::StrCat("a folder that is not among the files of ", path),
             absl::StrCat(platform::Shown(pattern, 200),
                          " would take the checkpoints for text: use a folder beside it, not in it"));
    }
    return text;
  }

  // "README, 12 bytes", of the files of which a part is taken.
  static std::string Part(const std::vector<data::NamedSize>& files, const std::vector<int64_t>& bytes) {
    std::string name;
    int64_t number = 0;
    for (size_t i = 0; i < files.size(); ++i) {
      if (bytes[i] > 0) {
        name = files[i].name;
        ++number;
      }
    }
    const int64_t sum = std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
    return absl::StrCat(number == 1 ? platform::Shown(name, 200) : platform::CountedText(number, "file"),
                        ", ", platform::CountedText(sum, "byte"));
  }

  // What is trained on and what is held out, as the trainer will divide the files.
  void CheckParts(const DataText& text, const std::vector<data::NamedSize>& files) {
    const v1::Data& data = spec_.data();
    const bool is_named = !ValidationTexts(data).empty();
    const double fraction = is_named ? 0 : data.validation_fraction();
    const std::vector<int64_t> held = data::HeldOutBytes(files, fraction);
    std::vector<int64_t> trained;
    for (size_t i = 0; i < files.size(); ++i) {
      trained.push_back(files[i].size - held[i]);
    }
    const auto sum = [](const std::vector<int64_t>& bytes) {
      return std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
    };
    if (sum(trained) < WindowOf(spec_)) {
      Refuse(text.field, text.path, absl::StrCat(WindowText(spec_, "bytes"), " to train on"),
             absl::StrCat("beside what validation_fraction ", NumberText(fraction), " holds out there is ",
                          Part(files, trained),
                          ": use more text, or name the held-out text with "
                          "data.validation"));
    } else if (spec_.training().validate_every_steps() > 0 && !is_named && fraction > 0 &&
               sum(held) < WindowOf(spec_)) {
      Refuse(text.field, text.path, absl::StrCat(WindowText(spec_, "bytes"), " to hold out"),
             absl::StrCat("validation_fraction ", NumberText(fraction), " holds out ", Part(files, held),
                          files.size() == 1 ? "" : ", as whole files",
                          ": name other text with data.validation, hold out a larger fraction, or use "
                          "training.validate_every_steps: 0"));
    }
    const auto is_trained = [](int64_t bytes) { return bytes > 0; };
    if (data.documents() == v1::DOCUMENTS_PACKED && data.sources().empty() && !data.has_end_of_document() &&
        std::count_if(trained.begin(), trained.end(), is_trained) == 1) {
      const size_t only = std::find_if(trained.begin(), trained.end(), is_trained) - trained.begin();
      Refuse("data.documents", "packed", "stream, or packed where two files or more are trained on",
             absl::StrCat("a file is a document, and only ", platform::Shown(files[only].name, 200),
                          " is trained on, of ", platform::CountedText(files.size(), "file"),
                          " with text in ", platform::Shown(text.path, 200),
                          ": name the token that ends a document with data.end_of_document, or use stream"));
    }
  }

  const v1::JobSpec& spec_;
  const BeforePath& before_;
  std::vector<v1::Violation> violations_;
};

}  // namespace

std::vector<v1::Violation> CheckTextFiles(const v1::JobSpec& resolved, const BeforePath& before) {
  return TextChecker(resolved, before).Run();
}

void CheckApart(const std::vector<FilesOfText>& trained, const FilesOfText& validation,
                std::vector<v1::Violation>& violations) {
  std::map<std::pair<uint64_t, uint64_t>, const FoundFile*> held_out;
  for (const FoundFile& found : validation.files) {
    held_out.emplace(std::pair(found.file.device, found.file.inode), &found);
  }
  for (const FilesOfText& text : trained) {
    for (const FoundFile& found : text.files) {
      const auto same = held_out.find({found.file.device, found.file.inode});
      if (same == held_out.end()) {
        continue;
      }
      const std::string& path = same->second->path;
      violations.push_back(
          MakeViolation(validation.field, validation.path, "files that are not among those of " + text.field,
                        absl::StrCat(platform::Shown(path, 200), " is also a training file",
                                     found.path == path ? "" : ", " + platform::Shown(found.path, 200),
                                     ": name other files, or hold out a part of ", text.field,
                                     " with data.validation_fraction")));
      return;
    }
  }
}

void CheckShared(const std::vector<FilesOfText>& trained, std::vector<v1::Violation>& violations) {
  std::vector<std::vector<data::FileOfText>> texts;
  for (const FilesOfText& text : trained) {
    std::vector<data::FileOfText>& files = texts.emplace_back();
    for (const FoundFile& found : text.files) {
      files.push_back(found.file);
    }
  }
  const std::optional<data::SharedFile> shared = data::FindSharedFile(texts);
  if (shared.has_value()) {
    const FilesOfText& second = trained[shared->second];
    const std::string& first = trained[shared->first].field;
    violations.push_back(MakeViolation(
        second.field, second.path,
        absl::StrCat("files that are not among those of ", first, ", or the same files as there"),
        absl::StrCat(platform::Shown(second.files[shared->file].path, 200), " is also a file of ", first,
                     ", and what is held out of the one would be trained on through the other: name other "
                     "files, name held-out text with data.validation, or set data.validation_fraction to "
                     "0")));
  }
}

}  // namespace tandem::jobspec
