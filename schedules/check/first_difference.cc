// SPDX-License-Identifier: Apache-2.0
#include "schedules/check/first_difference.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "schedules/check/node_pass.h"
#include "schedules/program/text.h"

namespace tandem::schedules {
namespace {

class Comparison {
 public:
  Comparison(const Outline& outline, const CellName& cell_name, const Symbols& symbols,
             const Reference& reference)
      : outline_(outline), cell_name_(cell_name), symbols_(symbols), reference_(reference) {}

  std::string Run(Symbol got, Symbol expected, std::string name) {
    for (bool read = false;; read = true) {
      if (IsSum(expected) || IsSum(got)) {
        if (std::string words = CompareSums(got, expected, name); !words.empty()) {
          return words;
        }
        continue;  // it went down to two terms
      }
      if (symbols_.op(got) == SymbolOp::kGarbage) {
        return Garbage(got, expected, name);
      }
      if (IsBeforeItsStep(got, expected)) {
        const std::string& unit = outline_.units[SteppedUnit(expected)].name;
        return read ? absl::StrCat(unit, " is read as it was before its optimizer step")
                    : absl::StrCat(unit, " misses its optimizer step");
      }
      const auto found = symbols_.arguments(got);
      const auto wanted = symbols_.arguments(expected);
      const bool same_operation = symbols_.op(got) == symbols_.op(expected) &&
                                  symbols_.a(got) == symbols_.a(expected) &&
                                  symbols_.b(got) == symbols_.b(expected) &&
                                  symbols_.c(got) == symbols_.c(expected) && found.size() == wanted.size();
      if (!same_operation) {
        return absl::StrCat(name, " is ", Describe(got), " instead of ", Describe(expected));
      }
      const int k =
          static_cast<int>(std::mismatch(found.begin(), found.end(), wanted.begin()).first - found.begin());
      name = NameOfArgument(expected, k, name);
      got = found[k];
      expected = wanted[k];
    }
  }

 private:
  bool IsSum(Symbol s) const { return symbols_.op(s) == SymbolOp::kAdd || symbols_.op(s) == SymbolOp::kFold; }

  // What is added up, in order.
  void Terms(Symbol sum, std::vector<Symbol>& terms) const {
    if (!IsSum(sum)) {
      terms.push_back(sum);
      return;
    }
    for (const Symbol argument : symbols_.arguments(sum)) {
      Terms(argument, terms);
    }
  }

  // The words; or none, and the two terms to compare instead.
  std::string CompareSums(Symbol& got, Symbol& expected, const std::string& name) const {
    std::vector<Symbol> found;
    std::vector<Symbol> wanted;
    Terms(got, found);
    Terms(expected, wanted);
    for (size_t k = 0; k < wanted.size(); ++k) {
      if (std::find(found.begin(), found.end(), wanted[k]) != found.end()) {
        continue;
      }
      const bool replaced =
          found.size() == wanted.size() && std::find(wanted.begin(), wanted.end(), found[k]) == wanted.end();
      if (!replaced) {
        return absl::StrCat(Contribution(wanted[k]), " is missing from ", name);
      }
      got = found[k];
      expected = wanted[k];
      return "";
    }
    for (const Symbol term : found) {
      const auto in_found = std::count(found.begin(), found.end(), term);
      const auto in_wanted = std::count(wanted.begin(), wanted.end(), term);
      if (in_wanted == 0) {
        return symbols_.op(term) == SymbolOp::kGarbage
                   ? absl::StrCat(name, " is added to what was in ", cell_name_(symbols_.a(term)), " before")
               : symbols_.op(term) == SymbolOp::kInitial
                   ? absl::StrCat(name, " is added to that of the former run instead of overwriting it")
                   : absl::StrCat(Contribution(term), " is in ", name, " and does not belong there");
      }
      if (in_found > in_wanted) {
        return absl::StrCat(Contribution(term), " is ",
                            in_found == 2 ? "twice" : absl::StrCat(in_found, " times"), " in ", name);
      }
    }
    const auto [first, other] = std::mismatch(found.begin(), found.end(), wanted.begin(), wanted.end());
    if (first != found.end() && other != wanted.end()) {
      return absl::StrCat(Contribution(*first), " is out of order in ", name);
    }
    return absl::StrCat(name, " is not reduced as it is placed");
  }

  // "the contribution of layers.3.mlp of microbatch 1", of a node's output or a unit's contribution.
  std::string Contribution(Symbol s) const {
    const SymbolOp op = symbols_.op(s);
    if (op != SymbolOp::kConcat && op != SymbolOp::kRound && (op != SymbolOp::kOutput || CallUnder(s) < 0)) {
      return Describe(s);
    }
    std::string names;
    std::string microbatch;
    for (const Symbol part : op == SymbolOp::kConcat ? symbols_.arguments(s) : absl::MakeConstSpan(&s, 1)) {
      if (const Symbol call = CallUnder(part); call >= 0) {
        absl::StrAppend(&names, names.empty() ? "" : " and ", outline_.nodes[symbols_.a(call)].name);
        microbatch = OfMicrobatch(call);
      }
    }
    return absl::StrCat("the contribution of ", names.empty() ? "nothing" : names, microbatch);
  }

  // The first pass whose output is in a part of a contribution; -1: none.
  Symbol CallUnder(Symbol s) const {
    while (symbols_.op(s) == SymbolOp::kRound || IsSum(s)) {
      s = symbols_.arguments(s)[0];
    }
    if (symbols_.op(s) != SymbolOp::kOutput || symbols_.op(symbols_.arguments(s)[0]) != SymbolOp::kCall) {
      return -1;
    }
    return symbols_.arguments(s)[0];
  }

  std::string OfMicrobatch(Symbol call) const {
    const int microbatch = reference_.MicrobatchOf(call);
    return microbatch < 0 ? "" : absl::StrCat(" of microbatch ", microbatch);
  }

  std::string Garbage(Symbol got, Symbol expected, const std::string& name) const {
    const std::string buffer =
        symbols_.a(got) < 0 ? "something that is not declared" : cell_name_(symbols_.a(got));
    const Symbol call = CallUnder(expected);
    const Opcode opcode = call < 0 ? Opcode::kForward : static_cast<Opcode>(symbols_.b(call));
    if (call >= 0 && opcode != Opcode::kForward) {
      return absl::StrCat(Contribution(expected), " is missing from ", name, ": ", buffer,
                          " is read and nothing has written it");
    }
    return absl::StrCat(name, " is read from ", buffer, ", which does not hold ", Describe(expected));
  }

  // The unit whose step's result an expression is; -1: the expression is something else.
  UnitId SteppedUnit(Symbol s) const {
    return symbols_.op(s) == SymbolOp::kOutput &&
                   symbols_.op(symbols_.arguments(s)[0]) == SymbolOp::kOptimizer
               ? symbols_.a(symbols_.arguments(s)[0])
               : -1;
  }

  bool IsBeforeItsStep(Symbol got, Symbol expected) const {
    const UnitId unit = SteppedUnit(expected);
    return unit >= 0 && symbols_.op(got) == SymbolOp::kInitial && symbols_.b(got) == unit &&
           symbols_.a(got) == symbols_.a(expected);
  }

  std::string NameOfArgument(Symbol s, int k, const std::string& name) const {
    switch (symbols_.op(s)) {
      case SymbolOp::kCall:
        return absl::StrCat(ArgumentName(outline_, symbols_.a(s), static_cast<Opcode>(symbols_.b(s)), k),
                            OfMicrobatch(s));
      case SymbolOp::kNormTerms:
        return ContentName(outline_, BufferKind::kGradients, symbols_.a(s));
      case SymbolOp::kOptimizer: {
        const BufferKind kinds[] = {BufferKind::kGradients, BufferKind::kOutcome, BufferKind::kInputs,
                                    BufferKind::kWeights, BufferKind::kOptimizerState};
        return ContentName(outline_, kinds[k], symbols_.a(s));
      }
      case SymbolOp::kUpdated:
        return k == 0   ? ContentName(outline_, BufferKind::kOutcome, -1)
               : k == 1 ? outline_.states[outline_.states[symbols_.a(s)].counter].name
                        : outline_.states[symbols_.a(s)].name;
      case SymbolOp::kGather:
        return absl::StrCat("what is gathered of ", outline_.units[symbols_.a(s)].name);
      default:
        return name;
    }
  }

  std::string Describe(Symbol s) const {
    switch (symbols_.op(s)) {
      case SymbolOp::kGarbage:
        return symbols_.a(s) < 0 ? "something that nothing has written"
                                 : absl::StrCat("what happened to be in ", cell_name_(symbols_.a(s)));
      case SymbolOp::kInitial:
        return absl::StrCat(ContentName(outline_, static_cast<BufferKind>(symbols_.a(s)), symbols_.b(s)),
                            " as the run found it");
      case SymbolOp::kFormer:
        return absl::StrCat(ContentName(outline_, static_cast<BufferKind>(symbols_.a(s)), symbols_.b(s)),
                            " of the former run");
      case SymbolOp::kCall:
        return absl::StrCat(ToText(static_cast<Opcode>(symbols_.b(s))), " ",
                            outline_.nodes[symbols_.a(s)].name, OfMicrobatch(s));
      case SymbolOp::kOutput:
        return SteppedUnit(s) >= 0
                   ? absl::StrCat("what the optimizer step of ", outline_.units[SteppedUnit(s)].name,
                                  " yields")
                   : absl::StrCat("output ", symbols_.a(s), " of ", Describe(symbols_.arguments(s)[0]));
      case SymbolOp::kAdd:
      case SymbolOp::kFold:
        return "a sum";
      case SymbolOp::kConcat:
        return Contribution(s);
      case SymbolOp::kPart:
        return absl::StrCat("part ", symbols_.a(s), " of ", Describe(symbols_.arguments(s)[0]));
      case SymbolOp::kGather:
        return absl::StrCat("the gathered ", outline_.units[symbols_.a(s)].name);
      case SymbolOp::kZero:
        return "zero";
      case SymbolOp::kRound:
        return absl::StrCat(Contribution(s), ", rounded");
      case SymbolOp::kNormTerms:
        return absl::StrCat("the norm terms of ", outline_.units[symbols_.a(s)].name);
      case SymbolOp::kNorm:
        return "the outcome of the norm";
      case SymbolOp::kOptimizer:
        return absl::StrCat("the optimizer step of ", outline_.units[symbols_.a(s)].name);
      case SymbolOp::kUpdated:
        return absl::StrCat("the update of ", outline_.states[symbols_.a(s)].name);
    }
    return "?";
  }

  const Outline& outline_;
  const CellName& cell_name_;
  const Symbols& symbols_;
  const Reference& reference_;
};

}  // namespace

std::string FirstDifference(const Outline& outline, const CellName& cell_name, const Symbols& symbols,
                            const Reference& reference, Symbol got, Symbol expected, std::string name) {
  return Comparison(outline, cell_name, symbols, reference).Run(got, expected, std::move(name));
}

std::string ContentName(const Outline& outline, BufferKind kind, int subject) {
  const BufferKindInfo& info = InfoOf(kind);
  switch (info.subject) {
    case SubjectKind::kUnit:
      return absl::StrCat("the ", kind == BufferKind::kGradients ? "gradient" : info.name, " of ",
                          outline.units[subject].name);
    case SubjectKind::kState:
      return outline.states[subject].name;
    case SubjectKind::kValue:
      return absl::StrCat(kind == BufferKind::kHostLosses ? "the report of " : "",
                          outline.values[subject].name);
    case SubjectKind::kNone:
      break;
  }
  return absl::StrCat("the ", info.name);
}

}  // namespace tandem::schedules
