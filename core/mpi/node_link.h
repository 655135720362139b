// Messages between nodes by sends and receives of the MPI library.
#pragma once

#include <memory>

#include "group/node_link.h"
#include "mpi/library.h"

namespace linkgauge {

// Over a communicator of its own, which is used for nothing else. Collective over MPI's world.
std::shared_ptr<NodeLink> make_mpi_link(std::shared_ptr<MpiLibrary> mpi);

}  // namespace linkgauge
