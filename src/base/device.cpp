// SPDX-License-Identifier: Apache-2.0
#include "pleat/base/device.hpp"

#include "pleat/base/error.hpp"
#include "pleat/base/gpu_stream.hpp"

namespace pleat {

void require_device() {
#if defined(KOKKOS_ENABLE_CUDA) || defined(KOKKOS_ENABLE_HIP)
  int devices = 0;
  const gpu::Error error = PLEAT_GPU(GetDeviceCount)(&devices);
  if (error == PLEAT_GPU(Success) && devices > 0) return;
  PLEAT_FAIL(
      InputError, "PL0105",
      "this program was built for GPUs ({}), and there is none that it can use: {}\n"
      "HINT: nvidia-smi (rocm-smi) shows what the driver sees, and which toolkit it is "
      "new enough for; in a job ask for a GPU, in a container pass it through.",
      ExecSpace::name(),
      error == PLEAT_GPU(Success) ? "no device" : PLEAT_GPU(GetErrorString)(error));
#endif
}

}  // namespace pleat
