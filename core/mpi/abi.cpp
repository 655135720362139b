#include "mpi/abi.h"

namespace linkgauge {
namespace {

// From mpi.h of MPICH 4.0 and 5.0, of Open MPI 4.1 and 5.0, and mpi_abi.h of MPICH 5.0; tests/mpi compares them with
// each that is installed.
constexpr MpiConstants kConstants[] = {{4, -1, 1, 1, -2, -1, -32766, 512, 8192},  // kMpich
                                       {8, 1, 0, 0, -1, -1, -32766, 256, 256},    // kOpenMpi
                                       {8, 1, 0, 0, -1, -2, -32766, 512, 8192}};  // kStandard

}  // namespace

const MpiConstants& mpi_constants(MpiAbi abi) { return kConstants[static_cast<std::size_t>(abi)]; }

}  // namespace linkgauge
