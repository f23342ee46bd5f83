// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "schedules/check/run_clocks.h"
#include "schedules/program/build_options.h"
#include "schedules/program/program.h"
#include "schedules/program/stages.h"

namespace tandem::schedules {

// The rules of the check (check.h), each in the file of its name.

// Rule 1: everything that an instruction refers to exists and fits, so that the other rules, the simulator
// and the trainer can rely on it. For every program:
//
// * targets, microbatches, streams, communicators, buffers and parts are in range; waits point to lower
//   positions
// * operands have, in order, the kind, subject, mode and size that the trainer binds there (program.h)
// * an operand of the former run is an element of a ring, and is only read; streams that copy to and from the
//   host touch nothing but rings
// * every buffer lives as long as its kind says, and is divided into parts as its unit is
// * every buffer is aligned and within its region; persistent buffers are below the locals, and the same in
//   every program
// * a communicator is used from one stream, the same in every program
absl::Status CheckFormed(const Outline& outline, const BuildOptions& options, const StagePrograms& stage);

// Rule 2: two accesses of a part of a buffer are ordered by streams and waits, within a run and from run to
// run, unless both are reads. Split sizes on the host are read by the issuing thread, so it must have waited
// for them before it issues a reader.
//
// The executor itself orders runs unless one is the former run of the other (run_clocks.h). It is therefore
// enough to place a run of `program` behind a former run of any program of the stage, and to assume that this
// former run has accessed everything that any of these programs accesses. The elements of a ring change
// places from run to run. Together this covers any number of runs in a row, whatever their programs.
//
// Requires programs that are formed.
absl::Status CheckOrdered(const Outline& outline, const Program& program, const RunClocks& clocks,
                          absl::Span<const Program* const> stage);

// Rule 3: buffers that share bytes are ordered. All accesses of one end before any access of the other
// starts. A persistent buffer or ring shares no bytes.
//
// It is enough to compare, byte by byte, each buffer with the one that had the byte before it, because the
// relation is transitive: if all of A is before all of B, and all of B before all of C, then A is before C.
// Nothing needs to be compared between runs: streams that copy to or from the host do not touch locals (rule
// 1), and all other streams start after those of the former run.
//
// Requires programs that are formed.
absl::Status CheckApart(const Outline& outline, const Program& program, const RunClocks& clocks);

// Rule 4, within one stage: the ranks of the stage agree.
//
// The ranks run the same text, so one represents all (together.h). The k-th collective of a communicator is
// the same instruction on each rank, because one stream issues all of them (rule 1); therefore kind and bytes
// agree. Once all ranks have ended what that instruction waits for, all of them start it. A stage alone
// always gets to the end, because waits point to lower positions (rule 1), so the lowest instruction that has
// not ended can run.
//
// This function checks what that argument needs: the ranks of each communicator are exactly the group that
// its unit or node is placed on.
absl::Status CheckAgreed(const Outline& outline, const BuildOptions& options, const StagePrograms& stage);

// Rule 5: the programs of all stages compute the reference step of the undivided outline (reference.h). They
// are executed on symbols: several stages in an order that rule 4 allows, a single stage in issue order (by
// rule 2, all orders give the same result); a receive yields what its send read. At the end, the content of
// every persistent buffer, of this run's element of every ring, and of every report, on every stage, must be
// the reference's expression. Locals start as distinct garbage. Nothing is assumed about what the former run
// left, so this holds for every run of a job.
//
// `train` must equal Update() and then Step(), `update` Update(), and `begin` Step(). So given the same
// inputs from the host, `train` means `update` and then `begin`.
//
// `options` belong to the undivided outline; its sizes are not read. `programs` are by stage. Requires a
// division (CheckDivision) and programs that are formed. The error says where expressions first differ:
// "meant: train: the contribution of layers.3.mlp of microbatch 1 is missing from the gradient of layers.3".
// If there are several stages, it gives the stage.
absl::Status CheckMeant(const Outline& undivided, const BuildOptions& options, absl::Span<const Stage> stages,
                        absl::Span<const StagePrograms* const> programs);

// Checks a job of one stage.
absl::Status CheckMeant(const Outline& outline, const BuildOptions& options, const StagePrograms& stage);

// Checks that the stages divide the outline: each of its nodes, units and states is in exactly one stage,
// with the same declaration. An error names the first that is not: "meant: 2 stages have layers.1.mlp".
absl::Status CheckDivision(const Outline& undivided, absl::Span<const Stage> stages);

// Rule 6: replaying a captured graph has the same effect as the instructions of its segment. A segment is a
// run of instructions that are consecutive in issue order and on one stream. They are passes of one
// microbatch, of nodes that BuildOptions::replayed selects. A graph accesses only the addresses with which it
// was captured. It starts when everything has ended that one of its instructions waits for, and what waits
// for one of them waits for all. Therefore
//
// * no instruction of a segment has an operand in a ring, whose address differs in the next run;
// * none communicates, or touches memory that the host may read or change at any time;
// * only the first waits, and other instructions wait only for the last.
//
// Other buffers have the same address in all runs (rule 1), so a graph serves every segment with the same
// passes and addresses. Programs without gradients have no segments. Requires a program that is formed.
absl::Status CheckGraphed(const Outline& outline, const BuildOptions& options, const Program& program);

}  // namespace tandem::schedules
