// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tandem::jobspec {

// What begins the name of the file in checkpoint.directory by which the ranks of a job that starts see that
// it is the same folder on all of their machines. It is removed at once; a rank 0 that is killed then leaves
// it. So it says nothing about what is in the folder.
inline constexpr char kStartTokenPrefix[] = ".same-folder.";

}  // namespace tandem::jobspec
