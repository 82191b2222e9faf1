// SPDX-License-Identifier: Apache-2.0
#include "mpi_file.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "agreement.hpp"
#include "pleat/base/error.hpp"
#include "pleat/comm/check_mpi.hpp"

namespace pleat::io {

namespace {

/// Frees itself.
class Info {
 public:
  Info() { PLEAT_CHECK_MPI(MPI_Info_create(&info_)); }
  ~Info() {
    if (info_ != MPI_INFO_NULL) MPI_Info_free(&info_);
  }
  Info(const Info&) = delete;
  Info& operator=(const Info&) = delete;
  void set(const char* key, const std::string& value) {
    PLEAT_CHECK_MPI(MPI_Info_set(info_, key, value.c_str()));
  }
  void set_unless_zero(const char* key, std::int64_t value) {
    if (value > 0) set(key, std::to_string(value));
  }
  std::int64_t number(const char* key, std::int64_t otherwise) const {
    std::array<char, MPI_MAX_INFO_VAL + 1> text{};
    int found = 0;
    PLEAT_CHECK_MPI(MPI_Info_get(info_, key, MPI_MAX_INFO_VAL, text.data(), &found));
    std::int64_t value = otherwise;
    if (found != 0) {
      std::from_chars(text.data(), text.data() + std::string_view(text.data()).size(), value);
    }
    return value > 0 ? value : otherwise;
  }
  MPI_Info get() const { return info_; }
  MPI_Info* address() { return &info_; }

 private:
  MPI_Info info_ = MPI_INFO_NULL;
};

/// ROMIO takes one aggregator of each host unless it is told otherwise.
void fill_aggregators(Info& info, std::int64_t aggregators, MPI_Comm comm) {
  if (aggregators <= 0) return;
  const std::int64_t hosts = hosts_of(comm);
  info.set("cb_nodes", std::to_string(aggregators));
  info.set("cb_config_list", fmt::format("*:{}", (aggregators + hosts - 1) / hosts));
}

void fill(Info& info, const CheckpointHints& hints) {
  constexpr std::int64_t kStripeUnit = 64 << 10;  // Lustre takes multiples of it
  const bool off = hints.collective_buffering == CollectiveBuffering::kOff;
  // Which accesses gain by it is decided by us, tensor by tensor (transfer.cpp).
  info.set("romio_cb_write", off ? "disable" : "enable");
  info.set("romio_cb_read", off ? "disable" : "enable");
  // Never read, change and write back what lies between the parts of one rank: between them
  // lie those of the others.
  info.set("romio_ds_write", "disable");
  info.set_unless_zero("cb_buffer_size", hints.buffer_bytes);
  info.set_unless_zero("striping_factor", hints.stripes);
  if (hints.stripes > 0 && hints.alignment % kStripeUnit == 0) {
    info.set_unless_zero("striping_unit", hints.alignment);
  }
}

/// A datatype that frees itself.
class BlockType {
 public:
  BlockType(const std::vector<int>& lengths, const std::vector<MPI_Aint>& places) {
    PLEAT_CHECK_MPI(MPI_Type_create_hindexed(static_cast<int>(lengths.size()), lengths.data(),
                                             places.data(), MPI_BYTE, &type_));
    PLEAT_CHECK_MPI(MPI_Type_commit(&type_));
  }
  ~BlockType() { MPI_Type_free(&type_); }
  BlockType(const BlockType&) = delete;
  BlockType& operator=(const BlockType&) = delete;
  MPI_Datatype get() const { return type_; }

 private:
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

/// MPI wants the parts of a file in ascending order; neighbours become one.
void sort_and_join(std::vector<FileRun>& runs) {
  std::sort(runs.begin(), runs.end(),
            [](const FileRun& a, const FileRun& b) { return a.offset < b.offset; });
  std::size_t kept = 0;
  for (std::size_t i = 1; i < runs.size(); ++i) {
    FileRun& last = runs[kept];
    const bool follows = runs[i].offset == last.offset + last.bytes &&
                         runs[i].memory == last.memory + last.bytes &&
                         last.bytes + runs[i].bytes <= kMostRunBytes;
    if (follows) {
      last.bytes += runs[i].bytes;
    } else {
      runs[++kept] = runs[i];
    }
  }
  if (!runs.empty()) runs.resize(kept + 1);
}

int open_mode(MpiFile::Access access) {
  switch (access) {
    case MpiFile::Access::kCreate:
      return MPI_MODE_CREATE | MPI_MODE_RDWR;
    case MpiFile::Access::kWrite:
      return MPI_MODE_RDWR;  // aggregators read where the parts leave holes
    default:
      return MPI_MODE_RDONLY;
  }
}

/// ROMIO takes what comes before a colon for the kind of file system.
std::string without_prefix(const std::string& path) {
  return path.find(':') == std::string::npos ? path : "ufs:" + path;
}

/// MPICH puts its own call stack before what matters.
std::string error_text(int code) {
  std::array<char, MPI_MAX_ERROR_STRING + 1> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  std::string_view view(text.data());
  while (view.ends_with('\n')) view.remove_suffix(1);
  view.remove_prefix(std::min(view.rfind('\n') + 1, view.size()));
  const std::size_t place = view.find("): ");
  if (place != std::string_view::npos) view.remove_prefix(place + 3);
  return std::string(view);
}

}  // namespace

MpiFile::MpiFile(const std::string& path, MPI_Comm comm, Access access,
                 const CheckpointHints& hints)
    : path_(path), access_(access), comm_(comm), ranks_(ranks_of(comm)) {
  Info info;
  fill(info, hints);
  fill_aggregators(info, hints.aggregators, comm);
  check(MPI_File_open(comm, without_prefix(path).c_str(), open_mode(access), info.get(), &file_),
        "the file");
  measure_window();
}

MpiFile::~MpiFile() {
  if (file_ != MPI_FILE_NULL) MPI_File_close(&file_);
}

// In one window each aggregator has one turn. With several turns, an aggregator of ROMIO whose
// write fails leaves the loop, while the others wait for it in the next turn.
void MpiFile::measure_window() {
  constexpr std::int64_t kBuffer = 16 << 20;  // ROMIO's default
  Info used;
  MPI_Info_free(used.address());
  check(MPI_File_get_info(file_, used.address()), "the hints");
  const std::int64_t buffer = used.number("cb_buffer_size", kBuffer);
  const std::int64_t unit = std::min(used.number("striping_unit", 1), buffer / 2);
  const std::int64_t aggregators =
      std::min<std::int64_t>(used.number("cb_nodes", 1), ranks_);
  window_ = std::max<std::int64_t>(1, aggregators * (buffer - unit));
}

void MpiFile::check(int code, const char* what) const {
  if (code == MPI_SUCCESS) return;
  if (access_ == Access::kRead) {
    PLEAT_FAIL(InputError, "PL0302", "{}: cannot read {} (MPI-IO: {})", path_, what,
               error_text(code));
  }
  PLEAT_FAIL(IoError, "PL0303",
             "{}: cannot write {} (MPI-IO: {})\nHINT: check free space, quota and "
             "permissions of the folder.",
             path_, what, error_text(code));
}

void MpiFile::transfer(const std::vector<FileRun>& runs) {
  for (const FileRun& run : runs) move(run);
}

// The system reads ahead by itself, in larger requests than those of POSIX_FADV_WILLNEED.
void MpiFile::move(const FileRun& run) {
  MPI_Status status;
  const int bytes = static_cast<int>(run.bytes);
  const int code =
      access_ == Access::kRead
          ? MPI_File_read_at(file_, run.offset, run.memory, bytes, MPI_BYTE, &status)
          : MPI_File_write_at(file_, run.offset, run.memory, bytes, MPI_BYTE, &status);
  check(code, "the values");
  int moved = 0;
  MPI_Get_count(&status, MPI_BYTE, &moved);
  check(moved == bytes ? MPI_SUCCESS : MPI_ERR_IO, "all of the values");
}

void MpiFile::set_view(MPI_Datatype type) {
  check(MPI_File_set_view(file_, 0, MPI_BYTE, type, "native", MPI_INFO_NULL), "a view");
}

void MpiFile::transfer_together(std::vector<FileRun> runs) {
  sort_and_join(runs);
  std::vector<int> lengths;
  std::vector<MPI_Aint> places;
  std::vector<MPI_Aint> addresses;
  for (const FileRun& run : runs) {
    lengths.push_back(static_cast<int>(run.bytes));
    places.push_back(static_cast<MPI_Aint>(run.offset));
    addresses.push_back(0);
    MPI_Get_address(run.memory, &addresses.back());
  }
  const BlockType in_file(lengths, places);
  const BlockType in_memory(lengths, addresses);
  const int count = runs.empty() ? 0 : 1;
  set_view(runs.empty() ? MPI_BYTE : in_file.get());
  MPI_Status status;
  const int code =
      access_ == Access::kRead
          ? MPI_File_read_all(file_, MPI_BOTTOM, count, in_memory.get(), &status)
          : MPI_File_write_all(file_, MPI_BOTTOM, count, in_memory.get(), &status);
  check(code, "the values");
}

void MpiFile::end_together() { set_view(MPI_BYTE); }

void MpiFile::sync() { check(MPI_File_sync(file_), "what the system still holds back"); }

void MpiFile::close() { check(MPI_File_close(&file_), "the end of the file"); }

}  // namespace pleat::io
