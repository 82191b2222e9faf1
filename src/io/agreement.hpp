// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief What fails on one rank fails alike on all, so that none waits for another.

#include <exception>
#include <functional>
#include <string>

#include <mpi.h>

namespace pleat::io {

/// \brief Throws on all ranks what the first rank that has a failure gives; returns where none
/// has. Collective.
void throw_alike(MPI_Comm comm, const std::exception_ptr& mine);

/// \brief What a piece of work throws, or nothing.
std::exception_ptr failure_of(const std::function<void()>& work);

/// \brief Does something on the first rank alone; what it throws, all throw. Collective.
void on_first_rank(MPI_Comm comm, const std::function<void()>& work);

int ranks_of(MPI_Comm comm);

/// \brief The machines that the ranks run on. Collective.
int hosts_of(MPI_Comm comm);

/// \brief Gives all ranks the first one's bytes. Collective.
void broadcast(MPI_Comm comm, std::string& bytes);

}  // namespace pleat::io
