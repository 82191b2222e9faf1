// SPDX-License-Identifier: Apache-2.0
#include "pleat/train/metrics.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>
#include <numeric>
#include <span>
#include <string_view>
#include <vector>

#include <unistd.h>

#include "pleat/base/error.hpp"
#include "pleat/io/durable_file.hpp"

namespace pleat::train {
namespace {

constexpr std::string_view kColumns =
    "step,loss,loss_ce,loss_aux,loss_z,learning_rate,grad_norm,tokens,tokens_per_second,"
    "model_flops,mfu,seconds,peak_memory,expert_imbalance,dropped,validation_loss,skipped,"
    "rollbacks,seconds_checkpoint,seconds_waiting";

std::string exact(double value) { return fmt::format("{:.17g}", value); }
std::string exact(const std::optional<double>& value) {
  return value ? exact(*value) : "";
}
std::string rounded(double value) { return fmt::format("{:.6g}", value); }

std::vector<std::string> split(std::string_view line) {
  std::vector<std::string> fields(1);
  for (const char c : line) {
    if (c == ',') {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  return fields;
}

/// The step that a row begins with; 0 when that is no number.
std::int64_t step_of(const std::string& field) {
  std::int64_t step = 0;
  const char* end = field.data() + field.size();
  const auto parsed = std::from_chars(field.data(), end, step);
  return parsed.ec == std::errc() && parsed.ptr == end ? step : 0;
}

/// Brings rows under another header; columns that they lack stay empty.
class Columns {
 public:
  /// \param header  of the file that is continued
  explicit Columns(std::string_view header) : old_(split(header)) {
    const std::vector<std::string> names = split(metrics_header());
    for (const std::string& name : names) {
      const auto found = std::find(old_.begin(), old_.end(), name);
      sources_.push_back(static_cast<std::size_t>(found - old_.begin()));
    }
    const auto known = [&](const std::string& name) {
      return std::find(names.begin(), names.end(), name) != names.end() &&
             std::count(old_.begin(), old_.end(), name) == 1;
    };
    usable_ = old_.front() == names.front() && std::all_of(old_.begin(), old_.end(), known);
  }

  /// \brief False where a column would get lost.
  bool usable() const { return usable_; }
  bool is_whole(const std::vector<std::string>& fields) const {
    return fields.size() == old_.size();
  }
  std::string row(std::vector<std::string> fields) const {
    fields.emplace_back();  // what an unknown column points to
    std::string text;
    for (const std::size_t source : sources_) text += fields[source] + ",";
    text.back() = '\n';
    return text;
  }

 private:
  std::vector<std::string> old_;
  std::vector<std::size_t> sources_;  ///< of each column; one past the last: none
  bool usable_ = false;
};

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

/// What a continued file starts with: the header and the rows up to the last step that
/// counts.
std::string kept_text(const std::string& path, std::int64_t last_step) {
  std::string text = metrics_header() + "\n";
  if (last_step == 0) return text;
  const std::vector<std::string> lines = complete_lines(path);
  if (lines.empty()) return text;
  const Columns columns(lines.front());
  if (!columns.usable()) {
    io::rename_durably(path, path + ".old");
    return text;
  }
  std::int64_t last = 0;
  for (const std::string& line : lines) {
    const std::vector<std::string> fields = split(line);
    const std::int64_t step = step_of(fields.front());
    if (!columns.is_whole(fields) || step <= last || step > last_step) continue;
    text += columns.row(fields);
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
      "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}", m.step, exact(m.loss),
      exact(m.loss_ce), exact(m.loss_aux), exact(m.loss_z), exact(m.learning_rate),
      exact(m.grad_norm), m.tokens, rounded(m.tokens_per_second), rounded(m.model_flops),
      m.mfu ? rounded(*m.mfu) : "", rounded(m.seconds), m.peak_memory,
      rounded(m.expert_imbalance), m.dropped, exact(m.validation_loss), m.skipped,
      m.rollbacks, rounded(m.seconds_checkpoint), rounded(m.seconds_waiting));
  for (const double seconds : m.phase_seconds) row += fmt::format(",{:.6g}", seconds);
  return row;
}

MetricsWriter::MetricsWriter(const std::string& path, std::int64_t resumed_step)
    : path_(path) {
  open(resumed_step);
}

void MetricsWriter::open(std::int64_t last_step) {
  const std::string temporary = path_ + ".tmp";
  const std::string text = kept_text(path_, last_step);
  file_.reset(std::fopen(temporary.c_str(), "w"));
  const bool full = errno == ENOSPC || errno == EDQUOT;
  PLEAT_REQUIRE(file_ != nullptr || full, InputError, "PL0701",
                "cannot write '{}': {}\nHINT: check run.output and its permissions.", path_,
                std::strerror(errno));
  const bool ready = file_ != nullptr && write_all(file_.get(), text) && fsync(fileno(file_.get())) == 0 &&
                     std::rename(temporary.c_str(), path_.c_str()) == 0;
  require_written(ready, "the earlier steps");
}

void MetricsWriter::require_written(bool written, const std::string& what) const {
  PLEAT_REQUIRE(written, IoError, "PL0702",
                "cannot write {} to '{}': {}\nHINT: is the disk full? The last checkpoint is "
                "intact; the same command goes on from there.",
                what, path_, std::strerror(errno));
}

void MetricsWriter::write(const StepMetrics& metrics) {
  const bool written = write_all(file_.get(), metrics_row(metrics) + "\n");
  require_written(written, fmt::format("step {}", metrics.step));
}

void MetricsWriter::rewind(std::int64_t step) { open(step); }

void MetricsWriter::sync() {
  require_written(fsync(fileno(file_.get())) == 0, "the last steps");
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
