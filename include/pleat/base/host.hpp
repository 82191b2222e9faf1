// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Where this process runs. The environment is anyone's: what these functions return
/// has no blanks or control characters from it and stays within a line.

#include <string>

namespace pleat {

/// \brief The name of this host, "unknown" where the system gives none.
std::string host_name();

/// \brief "Slurm job 123", from SLURM_JOB_ID, PBS_JOBID or FLUX_JOB_ID; empty outside of a
/// batch system.
std::string batch_job();

}  // namespace pleat
