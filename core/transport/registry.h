// The transports: each is a folder and one line here. Messages and lists name them in this order.
#pragma once

#include <memory>

#include "transport/transport.h"

// A line (name): the folder defines make_<name>_transport().
#define LINKGAUGE_TRANSPORTS(TRANSPORT) \
  TRANSPORT(staging)                    \
  TRANSPORT(copy_engine)                \
  TRANSPORT(kernel)                     \
  TRANSPORT(ccl)                        \
  TRANSPORT(ucx)                        \
  TRANSPORT(ofi)                        \
  TRANSPORT(nixl)                       \
  TRANSPORT(nvshmem)                    \
  TRANSPORT(mpi)

namespace linkgauge {

#define LINKGAUGE_DECLARED(name) std::unique_ptr<Transport> make_##name##_transport();
LINKGAUGE_TRANSPORTS(LINKGAUGE_DECLARED)
#undef LINKGAUGE_DECLARED

}  // namespace linkgauge
