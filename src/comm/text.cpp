// SPDX-License-Identifier: Apache-2.0
#include "pleat/comm/text.hpp"

namespace pleat::comm {

std::string broadcast_text(Communicator& group, const std::string& text, int root) {
  if (group.size() == 1) return text;
  const bool speaks = group.rank() == root;
  const auto size = static_cast<std::size_t>(group.all_reduce_value(
      speaks ? static_cast<std::int64_t>(text.size()) : 0, Reduction::kMax));
  const DeviceView<std::uint8_t, 1> bytes("pleat::comm::text", size);
  const auto host = Kokkos::create_mirror_view(Kokkos::HostSpace(), bytes);
  if (speaks) std::copy(text.begin(), text.end(), host.data());
  Kokkos::deep_copy(bytes, host);
  group.broadcast(bytes, root);
  Kokkos::deep_copy(host, bytes);
  return {host.data(), host.data() + size};
}

}  // namespace pleat::comm
