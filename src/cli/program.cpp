// SPDX-License-Identifier: Apache-2.0
#include "program.hpp"

#include <utility>

namespace pleat::cli {

std::unique_ptr<CLI::App> make_program(std::string description, std::string name) {
  return std::make_unique<CLI::App>(std::move(description), std::move(name));
}

CLI::App* add_command(CLI::App& program, std::string name, std::string description) {
  return program.add_subcommand(std::move(name), std::move(description));
}

}  // namespace pleat::cli
