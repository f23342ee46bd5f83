// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "data/content_sample.h"
#include "data/token_files.h"
#include "jobspec/check_text_files.h"
#include "jobspec/model_types.h"
#include "jobspec/schema.h"
#include "jobspec/text.h"
#include "platform/counted_text.h"
#include "platform/regular_file.h"
#include "platform/shown_text.h"

namespace tandem::jobspec {
namespace {

// A text, and its files that are there: of one that is not, what reads it says so.
struct ReadTokens {
  data::TokenText text;
  FilesOfText files;  // as text.files, without those
};

class TokenChecker {
 public:
  explicit TokenChecker(const v1::JobSpec& spec) : spec_(spec) {}

  std::vector<v1::Violation> Run(const std::vector<DataText>& train, const std::vector<DataText>& held_out) {
    if (spec_.data().tokenizer() == "bytes") {
      Refuse("data.tokenizer", "bytes", absl::StrCat("auto where ", train[0].field, " is tokens"),
             "they have a tokenizer of their own: omit the key");
    }
    std::vector<FilesOfText> trained;
    for (const DataText& text : train) {
      if (const std::optional<ReadTokens> read = Check(text); read.has_value()) {
        CheckTargets(text, read->text);
        CheckParts(text, read->text);
        AddContents(text, *read);
        trained.push_back(read->files);
      }
    }
    for (const DataText& text : held_out) {
      if (const std::optional<ReadTokens> read = Check(text); read.has_value()) {
        const size_t refused = violations_.size();
        CheckApart(trained, read->files, violations_);
        if (violations_.size() == refused) {
          CheckNoCopy(text, *read);
        }
      }
    }
    if (ValidatesOnEnds(spec_)) {
      CheckShared(trained, violations_);
    }
    if (spec_.data().has_end_of_document() && !indexed_.empty()) {
      Refuse("data.end_of_document", absl::StrCat(spec_.data().end_of_document()),
             absl::StrCat("absent where ", indexed_, " has an index"),
             "the index says where documents begin: omit the key");
    }
    return std::move(violations_);
  }

 private:
  // What copies of a file of tokens have in common: tokens, type, and bytes of the file.
  using Extent = std::tuple<int64_t, data::TokenType, int64_t>;
  struct Named {
    std::string field;
    std::string path;
  };

  void Refuse(const std::string& path, const std::string& value, const std::string& allowed,
              const std::string& remedy) {
    violations_.push_back(MakeViolation(path, value, allowed, remedy));
  }

  // Returns nothing if it has refused the text.
  std::optional<ReadTokens> Check(const DataText& named) {
    std::optional<data::TokenText> text = Read(named);
    if (!text.has_value()) {
      return std::nullopt;
    }
    if (indexed_.empty() && data::HasIndex(text->format)) {
      indexed_ = named.field;
    }
    if (known_.has_value() && !data::HaveSameTokenizer(*known_, *text)) {
      Refuse(named.field, named.path, absl::StrCat("a folder prepared with the tokenizer of ", known_field_),
             absl::StrCat("it was prepared with ", platform::Shown(text->dataset->tokenizer_path, 200),
                          ", and ", known_field_, " with ",
                          platform::Shown(known_->dataset->tokenizer_path, 200), ": prepare both with one"));
    }
    if (!known_.has_value() && text->dataset.has_value()) {
      known_ = text;
      known_field_ = named.field;
    }
    FilesOfText files{.field = named.field, .path = named.path, .files = {}};
    for (const data::TokenFile& file : text->files) {
      struct stat info;
      if (stat(file.path.c_str(), &info) == 0) {
        files.files.push_back({.file = {.device = info.st_dev, .inode = info.st_ino, .name = ""},
                               .path = file.path,
                               .bytes = info.st_size});
      }
    }
    return ReadTokens{.text = *std::move(text), .files = std::move(files)};
  }

  // Returns nothing if it has refused the text.
  std::optional<data::TokenText> Read(const DataText& named) {
    const std::string& path = named.field;
    const std::string& folder = named.path;
    const data::TextFormat format = data::FormatOf(folder, FormatOf(named));
    absl::StatusOr<data::TokenText> text = data::ReadTokenText(folder, format, TokenTypeOf(named));
    if (!text.ok()) {
      const bool prepared = format == data::TextFormat::kPrepared;
      Refuse(path, folder,
             prepared ? "a folder as tandem data prepare makes it" : "files of tokens that are whole",
             absl::StrCat(text.status().message(),
                          prepared ? ": prepare it again" : ": tandem data check says more"));
      return std::nullopt;
    }
    if (text->tokens < WindowOf(spec_)) {
      Refuse(path, folder, WindowText(spec_, "tokens"),
             absl::StrCat("it holds ", platform::CountedText(text->tokens, "token"),
                          ": use more text, or shorter sequences"));
      return std::nullopt;
    }
    const int64_t vocabulary = spec_.model().vocab_size();
    if (text->dataset.has_value() && spec_.model().has_vocab_size() &&
        text->dataset->vocabulary > vocabulary) {
      Refuse("model.vocab_size", absl::StrCat(vocabulary),
             absl::StrCat("at least ", text->dataset->vocabulary, " with the tokenizer of ", path),
             absl::StrCat("the tokenizer ", platform::Shown(text->dataset->tokenizer_path, 200),
                          " has ids up to ", text->dataset->vocabulary - 1, ": use ",
                          text->dataset->vocabulary, ", or prepare the text with the model's own tokenizer"));
      return std::nullopt;
    }
    return *std::move(text);
  }

  // Only the rows of jobs that validate, or leave out the first tokens of documents, say which targets count.
  void CheckTargets(const DataText& named, const data::TokenText& text) {
    const bool has_masks =
        text.dataset.has_value() && (text.dataset->has_masks || text.dataset->never_counted.has_value());
    const std::optional<model::LayerPattern> pattern = PatternOf(spec_.model());
    if (has_masks && pattern.has_value() && pattern->num_depths > 0) {
      Refuse(
          named.field, named.path,
          "text whose tokens all count as targets, with depths of multi-token prediction",
          "not built yet: multi-token prediction of some targets alone; use other text, or omit the first / "
          "of hybrid_pattern and what is behind it");
      return;
    }
    const bool says_targets =
        !spec_.data().count_first_token() ||
        (spec_.training().validate_every_steps() > 0 && spec_.training().validation_batches() > 0);
    if (has_masks && !says_targets) {
      Refuse(named.field, named.path, "text whose tokens all count as targets, in a job without validations",
             absl::StrCat("it says which tokens count as targets, and the rows of this job do not: ",
                          data::kSayTargets));
    }
  }

  void CheckParts(const DataText& named, const data::TokenText& text) {
    if (!ValidationTexts(spec_.data()).empty() || spec_.data().validation_fraction() <= 0) {
      return;
    }
    const double fraction = spec_.data().validation_fraction();
    const int64_t begin = data::EarliestHeldOut(text, fraction, WindowOf(spec_) - 1);
    const int64_t held = text.tokens - begin;
    if (begin < WindowOf(spec_) && !spec_.data().has_end_of_document()) {
      Refuse(named.field, named.path, WindowText(spec_, "tokens") + " to train on",
             absl::StrCat("beside what validation_fraction ", NumberText(fraction), " holds out there are ",
                          platform::CountedText(begin, "token"),
                          ": use more text, or name the held-out text with data.validation"));
    } else if (ValidatesOnEnds(spec_) && held < WindowOf(spec_)) {
      Refuse(named.field, named.path, WindowText(spec_, "tokens") + " to hold out",
             absl::StrCat("validation_fraction ", NumberText(fraction), " holds out ",
                          platform::CountedText(held, "token"),
                          " of whole documents: name other text with data.validation, hold out a larger "
                          "fraction, or use training.validate_every_steps: 0"));
    }
  }

  static Extent ExtentOf(const data::TokenFile& file, const FoundFile& found) {
    return {file.tokens, file.type, found.bytes};
  }

  // Calls `visit` with each file that is there.
  template <typename Visit>
  static void ForEach(const ReadTokens& read, const Visit& visit) {
    size_t next = 0;
    for (const data::TokenFile& file : read.text.files) {
      if (next < read.files.files.size() && read.files.files[next].path == file.path) {
        visit(ExtentOf(file, read.files.files[next++]), file.path);
      }
    }
  }

  void AddContents(const DataText& named, const ReadTokens& read) {
    ForEach(read, [&](const Extent& extent, const std::string& path) {
      trained_by_extent_.emplace(extent, Named{named.field, path});
    });
  }

  // A sample of a file's bytes; empty where they cannot be read, which is said when they are.
  const std::string& SampleOf(const std::string& path, int64_t bytes) {
    const auto [known, is_new] = samples_.try_emplace(path);
    if (is_new) {
      const absl::StatusOr<platform::Descriptor> file = platform::OpenRegularFile(path, O_RDONLY);
      const absl::StatusOr<std::string> sample =
          file.ok() ? data::ContentSample(file->get(), bytes) : file.status();
      known->second = sample.value_or("");
    }
    return known->second;
  }

  void CheckNoCopy(const DataText& named, const ReadTokens& read) {
    bool refused = false;
    ForEach(read, [&](const Extent& extent, const std::string& path) {
      const int64_t bytes = std::get<2>(extent);
      const auto [begin, end] = trained_by_extent_.equal_range(extent);
      for (auto it = begin; it != end && !refused; ++it) {
        const std::string& sample = SampleOf(path, bytes);
        if (!sample.empty() && sample == SampleOf(it->second.path, bytes)) {
          refused = true;
          Refuse(named.field, named.path, "files that are not among those of " + it->second.field,
                 absl::StrCat(platform::Shown(path, 200), " has the same tokens as ", it->second.field, ", ",
                              platform::Shown(it->second.path, 200),
                              ": name other files, or hold out a part of ", it->second.field,
                              " with data.validation_fraction"));
        }
      }
    });
  }

  const v1::JobSpec& spec_;
  std::vector<v1::Violation> violations_;
  std::optional<data::TokenText> known_;  // the first that says its tokenizer
  std::string known_field_;
  std::string indexed_;  // the first field whose text has an index
  std::multimap<Extent, Named> trained_by_extent_;
  std::map<std::string, std::string> samples_;  // by path
};

}  // namespace

std::vector<v1::Violation> CheckTokenFiles(const v1::JobSpec& resolved, const std::vector<DataText>& train,
                                           const std::vector<DataText>& held_out) {
  return TokenChecker(resolved).Run(train, held_out);
}

bool ValidatesOnEnds(const v1::JobSpec& resolved) {
  return ValidationTexts(resolved.data()).empty() && resolved.data().validation_fraction() > 0 &&
         resolved.training().validate_every_steps() > 0;
}

int64_t WindowOf(const v1::JobSpec& resolved) { return resolved.training().sequence_length() + 1; }

std::string WindowText(const v1::JobSpec& resolved, const char* unit) {
  return absl::StrCat("at least ", WindowOf(resolved), " ", unit, " (sequence_length + 1)");
}

}  // namespace tandem::jobspec
