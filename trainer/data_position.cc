// SPDX-License-Identifier: Apache-2.0
#include "trainer/data_position.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "data/blend.h"
#include "jobspec/schema.h"
#include "platform/counted_text.h"
#include "proto/reasons.h"
#include "trainer/failure.h"

namespace tandem::trainer {
namespace {

using checkpoint::DataSegment;
using checkpoint::TextPosition;

constexpr int64_t kMostSources = jobspec::kMostListEntries;
constexpr int64_t kMostWeights = 1'000'000 + kMostSources;  // their sum, as data/blend.h scales them

[[noreturn]] void RefuseCounts(const checkpoint::Info& there, const std::string& why) {
  throw UserError(
      absl::StrCat(
          "checkpoint.resume: what the checkpoint of step ", there.step, " says of its texts ", why,
          ": it was changed, or saved by a build that reads in another order; go on from another one, "
          "or take its weights alone with checkpoint.start_from"),
      proto::ReasonCode("DataPositionDiffers"));
}

std::string NameOf(const TextPosition& text) { return text.name.empty() ? "the text" : text.name; }

// Its one text was read one sequence after the other. What it was cut into follows from the length of its
// sequences, as well as it can be known.
DataSegment OfOlderBuild(const checkpoint::Info& there, const DataSegment& now) {
  DataSegment segment = now;
  segment.global_batch_size = there.global_batch_size;
  segment.sequence_length = there.sequence_length > 0 ? there.sequence_length : now.sequence_length;
  segment.seed = there.seed.value_or(now.seed);
  segment.shuffles = true;
  const auto same = std::find_if(now.sources.begin(), now.sources.end(), [&](const TextPosition& text) {
    return text.name.empty() || (!text.digest.empty() && text.digest == there.data_digest);
  });
  const bool is_same_text = same != now.sources.end();
  const int64_t windows = is_same_text ? same->windows : 1;
  segment.sources = {{.digest = there.data_digest,
                      .weight = is_same_text ? same->weight : 1,
                      .windows = segment.sequence_length == now.sequence_length
                                     ? windows
                                     : std::max<int64_t>(1, windows * (now.sequence_length + 1) /
                                                                (segment.sequence_length + 1)),
                      .taken = there.step * segment.global_batch_size}};
  return segment;
}

int64_t SamplesOf(const DataSegment& segment, int64_t step) {
  return (step - segment.from_step) * segment.global_batch_size;
}

void CheckCounts(const checkpoint::Info& there, const DataSegment& segment) {
  std::vector<int64_t> weights;
  int64_t sum = 0;
  for (const TextPosition& text : segment.sources) {
    weights.push_back(text.weight);
    const bool fits = text.weight >= 1 && text.weight <= kMostWeights && text.windows >= 1 &&
                      text.first >= 0 && text.taken >= text.first;
    sum += fits ? text.weight : kMostWeights + 1;
  }
  if (weights.empty() || std::ssize(weights) > kMostSources || sum > kMostWeights || segment.from_step < 0 ||
      segment.from_step > there.step || segment.global_batch_size < 1) {
    RefuseCounts(there, "contradicts itself");
  }
  data::Blend blend(std::move(weights));
  blend.Seek(SamplesOf(segment, there.step));
  for (size_t i = 0; i < segment.sources.size(); ++i) {
    const TextPosition& text = segment.sources[i];
    if (const int64_t counted = text.first + blend.counts()[i]; counted != text.taken) {
      RefuseCounts(there, absl::StrCat("counts ", text.taken, " sequences of ", NameOf(text),
                                       ", and this build ", counted));
    }
  }
}

// A checkpoint of an older build may not say its digest.
bool HasOtherContent(const TextPosition& a, const TextPosition& b) {
  return !a.digest.empty() && !b.digest.empty() && a.digest != b.digest;
}

bool IsSameText(const TextPosition& a, const TextPosition& b) {
  return a.name == b.name && a.weight == b.weight && a.windows == b.windows && !HasOtherContent(a, b);
}

// Whether one is the only text of a job, which has no name, and the other the same in a list.
bool IsRenamed(const TextPosition& a, const TextPosition& b) {
  return a.name.empty() != b.name.empty() && !a.digest.empty() && a.digest == b.digest;
}

bool HasSameOrder(const DataSegment& a, const DataSegment& b) {
  return a.sequence_length == b.sequence_length && a.seed == b.seed && a.shuffles == b.shuffles;
}

// The newest position of that text, and the segment that has it: by its name, or else by its digest where it
// had no name or has none now.
std::pair<const DataSegment*, const TextPosition*> FindText(const std::vector<DataSegment>& segments,
                                                            const TextPosition& text) {
  for (auto segment = segments.rbegin(); segment != segments.rend(); ++segment) {
    const std::vector<TextPosition>& sources = segment->sources;
    auto found = std::find_if(sources.begin(), sources.end(),
                              [&](const TextPosition& known) { return known.name == text.name; });
    if (found == sources.end()) {
      found = std::find_if(sources.begin(), sources.end(),
                           [&](const TextPosition& known) { return IsRenamed(known, text); });
    }
    if (found != sources.end()) {
      return {&*segment, &*found};
    }
  }
  return {nullptr, nullptr};
}

// How many windows of the text count as taken when the segment `now` begins.
int64_t FirstOf(const std::vector<DataSegment>& segments, const DataSegment& now, const TextPosition& text,
                std::vector<std::string>& changes) {
  const auto [segment, before] = FindText(segments, text);
  if (before == nullptr) {
    changes.push_back(absl::StrCat(NameOf(text), " is new and begins with its first epoch"));
    return 0;
  }
  const bool keeps_order = before->name == text.name || !now.shuffles;  // a name keys an order
  if (HasSameOrder(*segment, now) && keeps_order) {
    if (HasOtherContent(*before, text)) {
      changes.push_back(
          absl::StrCat(NameOf(text), " is not what it was, or another part of it is held out (digest ",
                       text.digest.substr(0, 12), ", was ", before->digest.substr(0, 12),
                       ") and goes on after ", platform::CountedText(before->taken, "sequence")));
    }
    if (before->windows != text.windows) {
      changes.push_back(absl::StrCat(NameOf(text), " has ", text.windows, " sequences, and had ",
                                     before->windows, ": some are read again and some are skipped"));
    }
    return before->taken;
  }
  const int64_t epochs = before->taken / before->windows;
  const int64_t rest = before->taken % before->windows;
  if (rest > 0) {
    changes.push_back(absl::StrCat(NameOf(text), " begins epoch ", epochs + 2, ", and ",
                                   platform::CountedText(before->windows - rest, "sequence"), " of epoch ",
                                   epochs + 1, " of ", before->windows, " are skipped"));
  }
  return (epochs + (rest > 0 ? 1 : 0)) * text.windows;
}

}  // namespace

DataStart ContinueData(const checkpoint::Info& there, const DataSegment& now) {
  DataStart start{.segments = there.data};
  if (start.segments.empty() && (there.step == 0 || there.global_batch_size == 0)) {
    start.segments = {now};  // nothing was read, or as this job reads: it does not say
    return start;
  }
  if (start.segments.empty()) {
    start.segments = {OfOlderBuild(there, now)};
  }
  const DataSegment last = start.segments.back();
  CheckCounts(there, last);
  if (HasSameOrder(last, now) && last.global_batch_size == now.global_batch_size &&
      std::equal(last.sources.begin(), last.sources.end(), now.sources.begin(), now.sources.end(),
                 IsSameText)) {
    return start;
  }
  DataSegment next = now;
  next.from_step = there.step;
  next.from_sample = last.from_sample + SamplesOf(last, there.step);
  std::vector<std::string> texts;
  for (TextPosition& text : next.sources) {
    text.first = FirstOf(start.segments, now, text, start.changes);
    text.taken = text.first;
  }
  const bool moves = !start.changes.empty();
  for (const TextPosition& text : last.sources) {
    if (FindText({now}, text).second == nullptr) {
      start.changes.push_back(absl::StrCat(NameOf(text), " is no longer read, after ",
                                           platform::CountedText(text.taken, "sequence")));
    }
  }
  if (last.global_batch_size != now.global_batch_size) {
    start.changes.push_back(absl::StrCat("training.global_batch_size is ", now.global_batch_size,
                                         ", and was ", last.global_batch_size));
  }
  const auto weights_of = [](const DataSegment& segment) {
    std::vector<int64_t> weights;
    for (const TextPosition& text : segment.sources) {
      weights.push_back(text.weight);
    }
    return weights;
  };
  if (weights_of(last) != weights_of(now)) {
    start.changes.push_back(absl::StrCat("the weights are ", absl::StrJoin(weights_of(now), ", "),
                                         " millionths, and were ", absl::StrJoin(weights_of(last), ", ")));
  }
  if (!moves) {
    start.changes.push_back(
        absl::StrCat("it goes on at sequence ", next.from_sample + 1, ", and none is read again or skipped"));
  }
  start.segments.push_back(std::move(next));
  return start;
}

std::vector<DataSegment> SegmentsUpTo(std::vector<DataSegment> segments, const std::vector<int64_t>& taken) {
  for (size_t i = 0; i < taken.size(); ++i) {
    segments.back().sources.at(i).taken = taken[i];
  }
  return segments;
}

}  // namespace tandem::trainer
