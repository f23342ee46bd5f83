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

// Rule 1: what an instruction names exists and fits, so that the other rules, the simulator and the trainer
// may take it as it is. Of every program:
//
//   * targets, microbatches, streams, communicators, buffers and parts are in range; waits point to lower
//     positions
//   * operands are, place by place, of the kind, subject, mode and size that the trainer binds there
//     (program.h)
//   * only rings are read from the former run, and nothing of a former run is changed; streams that copy to
//     and from the host touch nothing but rings
//   * every buffer lives as long as its kind says, and is divided as its unit is
//   * every buffer lies within its region, aligned; persistent ones below the locals and the same in every
//     program
//   * a communicator is used from one stream, the same in every program
absl::Status CheckFormed(const Outline& outline, const BuildOptions& options, const StagePrograms& stage);

// Rule 2: two accesses of a part of a buffer are ordered by streams and waits, within a run and from run to
// run, unless both are reads. Split sizes on the host are read by the issuing thread, so it must have waited
// for them before it issues a reader.
//
// The executor orders runs that are further apart than one (run_clocks.h). It is therefore enough to place a
// run of `program` behind a former run of any program of the stage, and to take everything that this former
// run may have accessed as accessed before the first instruction. The elements of a ring change places from
// run to run. Together this covers any number of runs in a row, whatever their programs.
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

// Rule 5: the programs of all stages mean the reference step of the undivided outline (reference.h). They are
// executed on symbols, several stages in an order of rule 4, one in issue order (rule 2 makes all orders
// equal); a receive yields what its send read. In the end every persistent buffer, every ring's element of
// this run and what was reported, of every stage, are the expressions of the reference. Locals start as
// distinct garbage; what the former run left is not assumed to be anything, so this holds for every run of a
// job.
//
// `train` is held to Update() and then Step(), `update` to Update(), `begin` to Step(): so train means update
// and then begin, given the same inputs from the host.
//
// options: of the undivided outline; its sizes are not read. programs: by stage. Requires a division
// (CheckDivision) and programs that are formed. The line says where expressions differ first: "meant: train:
// the contribution of layers.3.mlp of microbatch 1 is missing from the gradient of layers.3"; of several
// stages, it names the stage.
absl::Status CheckMeant(const Outline& undivided, const BuildOptions& options, absl::Span<const Stage> stages,
                        absl::Span<const StagePrograms* const> programs);

// Checks a job of one stage.
absl::Status CheckMeant(const Outline& outline, const BuildOptions& options, const StagePrograms& stage);

// Checks that the stages divide the outline: each node, unit and state of it is in exactly one stage, with
// the same declaration. The error names what is not: "meant: 2 stages have layers.1.mlp".
absl::Status CheckDivision(const Outline& undivided, absl::Span<const Stage> stages);

// Rule 6: what a captured graph does when it is replayed is what its segment's instructions would do. Each
// segment is a run of instructions that follow each other in issue order and on one stream: passes, of one
// microbatch, of nodes that BuildOptions::replayed names. A graph knows the addresses that it was captured
// with alone, and starts and ends as a whole, so
//
//   none has an operand in a ring, which is elsewhere in the next run;
//   none communicates, nor touches what the host may look at or change at any time;
//   only the first waits, and of those that wait for one, all wait for the last.
//
// Other buffers have one address in all runs (rule 1), so that with the same passes and addresses a graph
// serves a segment whenever it runs. Programs without gradients have no segments. Requires a program that is
// formed.
absl::Status CheckGraphed(const Outline& outline, const BuildOptions& options, const Program& program);

}  // namespace tandem::schedules
