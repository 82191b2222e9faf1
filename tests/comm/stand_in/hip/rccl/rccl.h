// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief The declarations of RCCL, which are NCCL's, where it is not installed.

#include <nccl.h>
