// SPDX-License-Identifier: Apache-2.0
#include "pleat/train/metrics.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <span>
#include <string_view>
#include <vector>

#include <unistd.h>

#include "pleat/base/error.hpp"

namespace pleat::train {
namespace {

constexpr std::string_view kColumns =
    "step,loss,loss_ce,loss_aux,loss_z,learning_rate,grad_norm,tokens,tokens_per_second,"
    "model_flops,mfu,seconds,peak_memory,expert_imbalance,dropped,validation_loss";

std::string exact(double value) { return fmt::format("{:.17g}", value); }
std::string exact(const std::optional<double>& value) {
  return value ? exact(*value) : "";
}
std::string rounded(double value) { return fmt::format("{:.6g}", value); }

/// The step that a row begins with; 0 when the row is not whole.
std::int64_t step_of_row(std::string_view row) {
  const std::string header = metrics_header();
  if (std::count(row.begin(), row.end(), ',') !=
      std::count(header.begin(), header.end(), ',')) {
    return 0;
  }
  std::int64_t step = 0;
  const auto parsed = std::from_chars(row.data(), row.data() + row.size(), step);
  const bool whole = parsed.ec == std::errc() && parsed.ptr < row.data() + row.size() &&
                     *parsed.ptr == ',';
  return whole ? step : 0;
}

/// The lines that end in a line feed; what a kill left behind the last one is not among
/// them.
std::vector<std::string> complete_lines(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::string> lines;
  std::size_t begin = 0;
  for (std::size_t end = text.find('\n'); end != std::string::npos;
       end = text.find('\n', begin)) {
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

/// What a continued file starts with: the header and the rows up to the resumed step.
std::string kept_text(const std::string& path, std::int64_t resumed_step) {
  std::string text = metrics_header() + "\n";
  if (resumed_step == 0) return text;
  const std::vector<std::string> lines = complete_lines(path);
  if (lines.empty()) return text;
  if (lines.front() != metrics_header()) {
    std::filesystem::rename(path, path + ".old");
    return text;
  }
  std::int64_t last = 0;
  for (const std::string& line : lines) {
    const std::int64_t step = step_of_row(line);
    if (step <= last || step > resumed_step) continue;
    text += line + "\n";
    last = step;
  }
  return text;
}

bool write_all(std::FILE* file, std::string_view text) {
  return std::fwrite(text.data(), 1, text.size(), file) == text.size() &&
         std::fflush(file) == 0;
}

}  // namespace

std::string metrics_header() {
  std::string header(kColumns);
  for (std::size_t phase = 0; phase < kPhases; ++phase) {
    header += fmt::format(",seconds_{}", phase_name(static_cast<Phase>(phase)));
  }
  return header;
}

std::string metrics_row(const StepMetrics& m) {
  std::string row = fmt::format(
      "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}", m.step, exact(m.loss),
      exact(m.loss_ce), exact(m.loss_aux), exact(m.loss_z), exact(m.learning_rate),
      exact(m.grad_norm), m.tokens, rounded(m.tokens_per_second), rounded(m.model_flops),
      m.mfu ? rounded(*m.mfu) : "", rounded(m.seconds), m.peak_memory,
      rounded(m.expert_imbalance), m.dropped, exact(m.validation_loss));
  for (const double seconds : m.phase_seconds) row += "," + rounded(seconds);
  return row;
}

MetricsWriter::MetricsWriter(const std::string& path, std::int64_t resumed_step)
    : path_(path) {
  const std::string temporary = path + ".tmp";
  const std::string text = kept_text(path, resumed_step);
  file_.reset(std::fopen(temporary.c_str(), "w"));
  const bool ready = file_ != nullptr && write_all(file_.get(), text) &&
                     fsync(fileno(file_.get())) == 0 &&
                     std::rename(temporary.c_str(), path.c_str()) == 0;
  PLEAT_REQUIRE(ready, InputError, "PL0701",
                "cannot write '{}': {}\nHINT: check run.output and its permissions.",
                path, std::strerror(errno));
}

void MetricsWriter::write(const StepMetrics& metrics) {
  PLEAT_REQUIRE(write_all(file_.get(), metrics_row(metrics) + "\n"), IoError, "PL0702",
                "cannot write step {} to '{}': {}\nHINT: is the disk full?", metrics.step,
                path_, std::strerror(errno));
}

double expert_imbalance(const double* counts, std::int64_t experts) {
  const std::span<const double> all(counts, static_cast<std::size_t>(experts));
  const double sum = std::accumulate(all.begin(), all.end(), 0.0);
  if (sum == 0.0) return 0.0;
  return *std::max_element(all.begin(), all.end()) * static_cast<double>(experts) / sum;
}

std::int64_t peak_memory_bytes() {
  // Not getrusage: its peak includes that of the parent before exec.
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6)) * 1024;
  }
  return 0;
}

}  // namespace pleat::train
