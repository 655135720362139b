// The factories behind make_transport, one a mechanism.
#pragma once

#include <memory>

#include "transport/transport.h"

namespace linkgauge {

std::unique_ptr<Transport> make_staging_transport();      // transport/staging.cpp
std::unique_ptr<Transport> make_copy_engine_transport();  // transport/copy_engine.cpp
std::unique_ptr<Transport> make_kernel_transport();       // transport/kernel.cpp
std::unique_ptr<Transport> make_mpi_transport();          // transport/mpi.cpp
std::unique_ptr<Transport> make_ccl_transport();          // transport/ccl.cpp
std::unique_ptr<Transport> make_ucx_transport();          // transport/ucx.cpp
std::unique_ptr<Transport> make_ofi_transport();          // transport/ofi.cpp
std::unique_ptr<Transport> make_nixl_transport();         // transport/nixl.cpp
std::unique_ptr<Transport> make_nvshmem_transport();      // transport/nvshmem.cpp

}  // namespace linkgauge
