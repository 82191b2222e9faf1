// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief From a deck and a number of ranks to the process grids, and what a pipeline
/// stage holds. Pure arithmetic: nothing is allocated, no rank need run.

#include <cstdint>
#include <vector>

#include <mpi.h>

#include "pleat/comm/grid.hpp"
#include "pleat/comm/grid_shape.hpp"
#include "pleat/model/placement.hpp"
#include "pleat/plan/mapping.hpp"
#include "pleat/plan/memory.hpp"
#include "pleat/train/run_config.hpp"

namespace pleat::train {

/// \brief What [parallel] sets; data and expert data follow from the rank count.
comm::Degrees degrees_of(const RunConfig& config);

/// \brief Both grids of a run. Checks that every axis divides what it cuts and that the grids
/// fill the ranks; what a message offers instead is legal on these ranks.
/// \throws InputError PL0801, PL0802, PL0209, PL0610, PL0622, PL0623
comm::GridShape grid_shape_of(const RunConfig& config, std::int64_t ranks);

/// \brief The grids of a run over all ranks of `world`. Collective. \throws InputError as
/// grid_shape_of() and comm::choose_backend()
comm::Grid make_grid(const RunConfig& config, MPI_Comm world, std::int64_t ranks);

/// \brief Checks that all ranks read the same deck, before they exchange anything else: a stale
/// copy on one node would have them wait for each other. Collective.
/// \throws InputError PL0722
void require_same_deck(const RunConfig& config, MPI_Comm world);

/// \brief The degrees of [parallel], chunks and layout; data and expert data are 1.
plan::Mapping mapping_of(const RunConfig& config);
/// \brief All degrees of a grid, with the chunks and the layout of the deck.
plan::Mapping mapping_of(const RunConfig& config, const comm::GridShape& grid);

plan::Batch batch_of(const RunConfig& config);

/// \brief Layers of each virtual stage, in model order: parallel.layout, else the
/// balanced one.
std::vector<std::int64_t> stage_layout(const RunConfig& config);

/// \brief What a rank holds of the model under that layout.
model::Placement placement_of(const RunConfig& config, const comm::GridShape& grid,
                              std::int64_t rank);

/// \brief Micro-batches of the fullest data rank in a step; others fill up with padding.
std::int64_t micro_batches_per_rank(const RunConfig& config, std::int64_t data_ranks);

/// \brief What a rank of the stage holds at most, for plan::training_memory.
plan::StageLoad stage_load(const RunConfig& config, const comm::GridShape& grid,
                           std::int64_t stage);

/// \brief What plan::training_memory is asked for a rank of the stage.
plan::MemoryRequest memory_request(const RunConfig& config, const comm::GridShape& grid,
                                   std::int64_t stage);

}  // namespace pleat::train
