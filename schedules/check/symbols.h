// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/hash/hash.h"
#include "absl/types/span.h"
#include "schedules/program/program.h"

namespace tandem::schedules {

// The computations of programs, as expressions instead of tensors. Equal expressions are one symbol, so two
// are compared at no cost. Equal means the same arithmetic on the same data in the same order, and therefore
// the same bits.
//
// An expression is a function of the rank, because all ranks run one text: "the weights" is each rank's
// shard, and a collective is an operator on that function. Gather(X) has, on every rank, X of all ranks.
// Nodes, values, units and states have the numbers of the undivided outline, whatever stage has them.

using Symbol = int;

// What an expression computes. Each comment says what the numbers a, b and c are; braces list the arguments.
enum class SymbolOp : uint8_t {
  kGarbage,  // a: number; equal to nothing else
  kInitial,  // a: kind of buffer, b: subject; what a persistent buffer, or this run's element of a ring,
             // holds at the start of a run
  kFormer,   // a: kind, b: subject; what the former run's element holds
  kCall,    // a: node, b: opcode (Forward for a Recompute), c: microbatch if the pass reads the run's inputs,
            // otherwise -1; arguments: everything that the pass reads
  kOutput,  // a: index of the result; argument: the kCall or kOptimizer that computes it
  kAdd,     // {what was there, what is added}
  kConcat,  // arguments: all parts of a buffer
  kPart,    // a: part; argument: what was written to a buffer as a whole
  kGather,  // a: unit, b: axis (0 inner, 1 outer)
  kZero,
  kRound,  // to the transport type
  kFold,   // a: unit, b: axis; {contribution} or {accumulator, contribution}: one by one in the order of the
           // ranks
  kNormTerms,  // a: unit
  kNorm,       // {terms of every trainable unit..., inputs}
  kOptimizer,  // a: unit; arguments: everything that an OptimizerStep reads
  kUpdated,    // a: state; {outcome, counter, state}; uses the counters of all ranks
};

// Expressions, each stored once. Not thread-safe.
class Symbols {
 public:
  Symbols() : known_(1 << 15, Hash{this}, Equal{this}) {}
  Symbols(const Symbols&) = delete;
  Symbols& operator=(const Symbols&) = delete;

  // A symbol that is equal to no other.
  Symbol Garbage(int number);

  Symbol Of(SymbolOp op, int a, int b, int c, absl::Span<const Symbol> arguments);
  Symbol Of(SymbolOp op, int a = 0, int b = 0, int c = 0, std::initializer_list<Symbol> arguments = {}) {
    return Of(op, a, b, c, absl::MakeConstSpan(arguments.begin(), arguments.size()));
  }

  Symbol Initial(BufferKind kind, int subject) {
    return Of(SymbolOp::kInitial, static_cast<int>(kind), subject);
  }
  Symbol Former(BufferKind kind, int subject) {
    return Of(SymbolOp::kFormer, static_cast<int>(kind), subject);
  }

  // Joins all parts of a buffer in order. If they are the parts of a symbol X, the result is X; a single part
  // is the result itself.
  Symbol Concat(absl::Span<const Symbol> parts);
  // Part `part` of a symbol that was written to a buffer as a whole.
  Symbol Part(int part, Symbol whole);

  SymbolOp op(Symbol s) const { return nodes_[s].op; }
  int a(Symbol s) const { return nodes_[s].a; }
  int b(Symbol s) const { return nodes_[s].b; }
  int c(Symbol s) const { return nodes_[s].c; }
  // Valid until the next symbol is made.
  absl::Span<const Symbol> arguments(Symbol s) const {
    return absl::MakeConstSpan(arguments_).subspan(nodes_[s].first_argument, nodes_[s].num_arguments);
  }

 private:
  struct Expression {
    SymbolOp op;
    int a = 0;
    int b = 0;
    int c = 0;
    size_t first_argument = 0;
    size_t num_arguments = 0;
  };
  struct Hash {
    size_t operator()(Symbol s) const {
      return absl::HashOf(of->op(s), of->a(s), of->b(s), of->c(s), of->arguments(s));
    }
    const Symbols* of;
  };
  struct Equal {
    bool operator()(Symbol s, Symbol t) const {
      return of->op(s) == of->op(t) && of->a(s) == of->a(t) && of->b(s) == of->b(t) && of->c(s) == of->c(t) &&
             of->arguments(s) == of->arguments(t);
    }
    const Symbols* of;
  };

  std::vector<Expression> nodes_;
  std::vector<Symbol> arguments_;
  absl::flat_hash_set<Symbol, Hash, Equal> known_;  // all but garbage
};

}  // namespace tandem::schedules
