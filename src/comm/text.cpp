// SPDX-License-Identifier: Apache-2.0
#include "pleat/comm/text.hpp"

#include <algorithm>

namespace pleat::comm {

std::string broadcast_text(Communicator& group, const std::string& text, int root) {
  if (group.size() == 1) return text;
  const bool speaks = group.rank() == root;
  const auto size = static_cast<std::size_t>(group.all_reduce_value(
      speaks ? static_cast<std::int64_t>(text.size()) : 0, Reduction::kMax));
  const HostView<std::uint8_t, 1> bytes("pleat::comm::text", size);
  if (speaks) std::copy(text.begin(), text.end(), bytes.data());
  group.broadcast(bytes, root);
  return {bytes.data(), bytes.data() + size};
}

std::vector<std::string> all_gather_text(Communicator& group, const std::string& text) {
  if (group.size() == 1) return {text};
  const auto longest = static_cast<std::size_t>(
      group.all_reduce_value(static_cast<std::int64_t>(text.size()), Reduction::kMax));
  // Shorter ones are filled up with NUL, at least one.
  const std::size_t bytes = longest + 1;
  const HostView<std::uint8_t, 1> mine_N("pleat::comm::text", bytes);
  const HostView<std::uint8_t, 1> all_PN(
      "pleat::comm::texts", bytes * static_cast<std::size_t>(group.size()));
  std::copy(text.begin(), text.end(), mine_N.data());
  group.all_gather(mine_N, all_PN);
  std::vector<std::string> texts;
  for (int member = 0; member < group.size(); ++member) {
    texts.emplace_back(reinterpret_cast<const char*>(all_PN.data()) +
                       static_cast<std::size_t>(member) * bytes);
  }
  return texts;
}

}  // namespace pleat::comm
