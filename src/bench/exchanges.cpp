// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "pleat/bench/rates.hpp"
#include "timing.hpp"

namespace pleat::bench {
namespace {

/// An exchange of arrays that have `whole` elements on each rank, P equal parts.
struct TimedExchange {
  const char* name;
  double parts_sent;  ///< of the array, by each rank at least
  std::function<void()> run;
};

/// To the next rank and from the one before, all at the same time: what every back end
/// does.
void pass_on(comm::Communicator& ranks, const DeviceView<float, 1>& from_N,
             const DeviceView<float, 1>& to_N) {
  constexpr int kTag = 0;
  const int next = (ranks.rank() + 1) % ranks.size();
  const int previous = (ranks.rank() + ranks.size() - 1) % ranks.size();
  comm::Pending receive = ranks.receive(to_N, previous, kTag);
  comm::Pending send = ranks.send(from_N, next, kTag);
  receive.wait();
  send.wait();
}

std::vector<TimedExchange> timed_exchanges(comm::Communicator& ranks, std::int64_t part) {
  const int size = ranks.size();
  const auto whole = static_cast<std::size_t>(part * size);
  const DeviceView<float, 1> a("pleat::bench::exchange", whole);
  const DeviceView<float, 1> b("pleat::bench::exchange", whole);
  const DeviceView<float, 1> own(a.data(), static_cast<std::size_t>(part));
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(size), part);
  const double others = static_cast<double>(size - 1) / size;
  comm::Communicator* const group = &ranks;
  return {
      {"send/receive", 1.0, [=] { pass_on(*group, a, b); }},
      {"all-reduce", 2.0 * others, [=] { group->all_reduce(a, comm::Reduction::kSum); }},
      {"all-gather", others, [=] { group->all_gather(own, b); }},
      {"reduce-scatter", others, [=] { group->reduce_scatter(b, own); }},
      {"all-to-all-v", others, [=] { group->all_to_all_v(a, counts, b, counts); }},
  };
}

/// "8 B", "64 KiB".
std::string bytes_text(double bytes) {
  if (bytes < 1024.0) return fmt::format("{:.0f} B", bytes);
  if (bytes < 1048576.0) return fmt::format("{:.4g} KiB", bytes / 1024.0);
  return fmt::format("{:.4g} MiB", bytes / 1048576.0);
}

}  // namespace

std::vector<Rate> measure_exchanges(comm::Communicator& ranks, double seconds,
                                    std::vector<Peak>& peaks) {
  std::vector<Rate> rates;
  if (ranks.size() == 1) return rates;
  constexpr std::int64_t kBytes[] = {8, 4096, 65536, 1 << 20, 1 << 24};
  constexpr double kMeasurements = 5.0 * static_cast<double>(std::size(kBytes));
  constexpr std::int64_t kElement = sizeof(float);
  const ExecSpace exec;
  double peak = 0.0;
  for (const std::int64_t wanted : kBytes) {
    const std::int64_t part = std::max<std::int64_t>(1, wanted / kElement / ranks.size());
    const auto bytes = static_cast<double>(part * ranks.size() * kElement);
    for (const TimedExchange& exchange : timed_exchanges(ranks, part)) {
      Rate rate{.name = exchange.name,
                .precision = "fp32",
                .shape = bytes_text(bytes),
                .work = exchange.parts_sent * bytes,
                .unit = "B/s",
                .peak = "exchange"};
      rate.seconds =
          best_seconds_together(exec, ranks, seconds / kMeasurements, exchange.run);
      if (rate.name == "send/receive") peak = std::max(peak, rate.rate());
      rates.push_back(std::move(rate));
    }
  }
  peaks.push_back({"exchange", peak, "B/s"});
  for (Rate& rate : rates) rate.share = rate.rate() / peak;
  return rates;
}

}  // namespace pleat::bench
