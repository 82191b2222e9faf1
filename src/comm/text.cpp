// SPDX-License-Identifier: Apache-2.0
#include "pleat/comm/text.hpp"

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

}  // namespace pleat::comm
