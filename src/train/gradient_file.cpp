// SPDX-License-Identifier: Apache-2.0
#include "pleat/train/gradient_file.hpp"

#include <span>
#include <type_traits>

#include <fmt/format.h>

#include "pleat/base/copy.hpp"
#include "pleat/comm/check_mpi.hpp"
#include "pleat/io/checkpoint.hpp"
#include "pleat/io/durable_file.hpp"
#include "pleat/io/hdf5.hpp"
#include "pleat/io/places.hpp"

namespace pleat::train {

template <class T>
void write_gradients(const std::string& folder, std::int64_t step, double loss,
                     double gradient_norm, const tensor::ParameterLayout& whole,
                     const tensor::FlatTensors<T>& gradients, MPI_Comm comm) {
  constexpr io::Hdf5Type kType =
      std::is_same_v<T, double> ? io::Hdf5Type::kF64 : io::Hdf5Type::kF32;
  int rank = 0;
  PLEAT_CHECK_MPI(MPI_Comm_rank(comm, &rank));
  if (rank == 0) io::make_folders(folder);
  PLEAT_CHECK_MPI(MPI_Barrier(comm));
  const std::string path = folder + "/" + io::checkpoint_name(step);
  const std::string temporary = path + ".tmp";
  const io::Hdf5Lock lock;  // a checkpoint may be under way in the background
  io::Hdf5File file = io::Hdf5File::create(temporary, comm);
  {
    io::Hdf5Group root = file.root();
    root.set_attribute("step", step);
    root.set_attribute("loss", loss);
    root.set_attribute("grad_norm", gradient_norm);
    const auto host_N = host_copy(gradients.flat());
    for (const tensor::ParameterSpec& parameter : whole.parameters()) {
      root.create_dataset("grads/" + parameter.name, parameter.global_shape, kType);
    }
    for (const tensor::ParameterSpec& parameter : gradients.layout().parameters()) {
      if (!parameter.written) continue;
      io::Hdf5Dataset dataset = root.dataset("grads/" + parameter.name);
      dataset.write<T>(parameter.local_offset, parameter.local_shape,
                       std::span<const T>(host_N.data() + parameter.offset,
                                          static_cast<std::size_t>(parameter.local_count())));
    }
  }
  file.close();
  if (rank == 0) io::rename_durably(temporary, path);
}

template void write_gradients<float>(const std::string&, std::int64_t, double, double,
                                     const tensor::ParameterLayout&,
                                     const tensor::FlatTensors<float>&, MPI_Comm);
template void write_gradients<double>(const std::string&, std::int64_t, double, double,
                                      const tensor::ParameterLayout&,
                                      const tensor::FlatTensors<double>&, MPI_Comm);

}  // namespace pleat::train
