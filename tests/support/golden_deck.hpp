// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief The golden cases of tests/golden as a plain user would run them.

#include <string>

#include <fmt/format.h>

#include "pleat/io/hdf5.hpp"
#include "support/places.hpp"

namespace pleat::test {

inline std::string golden_folder(const std::string& name) {
  return tests_folder() + "/golden/" + name;
}

/// \brief A deck that trains the case's trace; every number comes from the attributes of
/// trace.h5 and golden.h5.
inline std::string golden_deck(const std::string& name, const std::string& precision) {
  const std::string folder = golden_folder(name);
  const io::Hdf5File trace_file = io::Hdf5File::open_read(folder + "/trace.h5");
  const io::Hdf5Group trace = trace_file.root();
  const auto number = [&](const char* attribute) { return trace.attribute_text(attribute); };
  return fmt::format(
      "[run]\nsteps = {}\noutput = \"out\"\n"
      "[model]\ninit = \"{}\"\n"
      "[moe]\naux_loss.coeff = {}\nz_loss = {}\n"
      "[batch]\nsequence = {}\nmicro = {}\nglobal = {}\n"
      "[optimizer]\nlr = {}\nmin_lr = {}\nwarmup = {}\nbeta1 = {}\nbeta2 = {}\neps = {}\n"
      "weight_decay = {}\nclip = {}\n"
      "[precision]\ncompute = \"{}\"\n"
      "[data]\nformat = \"hdf5\"\npath = \"{}/trace.h5\"\ndataset = \"trace/tokens\"\n"
      "shuffle = false\n"
      "[output]\ngradients_at = [1]\n",
      number("steps"), folder, number("aux_loss_coeff"), number("z_loss_coeff"), number("seq"),
      number("batch"), number("batch"), number("lr_max"), number("lr_min"), number("warmup"),
      number("beta1"), number("beta2"), number("eps"), number("weight_decay"), number("clip"),
      precision, folder);
}

}  // namespace pleat::test
