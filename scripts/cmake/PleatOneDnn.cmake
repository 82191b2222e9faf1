# SPDX-License-Identifier: Apache-2.0
# oneDNN as target pleat_onednn, for matrix products in bf16 on CPUs that have instructions for
# them; which is asked at run time. PLEAT_HAVE_ONEDNN is defined where it is found; without it,
# and on other CPUs, the fp32 kernels do the work.
option(PLEAT_ONEDNN "Use oneDNN for products in bf16 where it is found" ON)
add_library(pleat_onednn INTERFACE)
if(PLEAT_ONEDNN AND NOT PLEAT_DEVICE)
  find_package(dnnl CONFIG QUIET)
  if(TARGET DNNL::dnnl)
    target_link_libraries(pleat_onednn INTERFACE DNNL::dnnl)
    target_compile_definitions(pleat_onednn INTERFACE PLEAT_HAVE_ONEDNN)
  endif()
endif()
