#include "transport/net/ofi/api.h"

#include <cstdlib>

#include "base/errors.h"

namespace linkgauge::ofi {
namespace {

constexpr const char* kFix = "; fix: install libfabric (Debian: libfabric1)";

}  // namespace

Library::Library(const std::vector<std::string>& folders)
    : OneLibrary(one_a_process("libfabric.so.1", folders), {"libfabric", "libfabric (libfabric.so.1)", kFix}) {
  if (table_.fi_version() < kApiVersion) {
    throw Unsupported("libfabric at " + library_.path() + " is " + version() + ", expected 1.15 or later" + kFix);
  }
}

std::string Library::version() const {
  const std::uint32_t version = table_.fi_version();
  return std::to_string(version >> 16) + "." + std::to_string(version & 0xffffU);
}

void Library::fail(long code, const char* call) const {
  const long positive = std::labs(code);
  throw RuntimeCallError(call, "libfabric's error", positive, -1, table_.fi_strerror(static_cast<int>(positive)));
}

Library::Infos Library::provider(bool device_memory) const {
  const Infos hints(table_.fi_dupinfo(nullptr), Freed{this});
  if (!hints) throw MemoryError("libfabric had no memory to list its providers");
  hints->caps = kTagged | kRma | kSend | kReceive | kRead | kWrite | kRemoteRead | kRemoteWrite;
  if (device_memory) hints->caps |= kDeviceMemory;
  hints->mode = kContext | kContext2;
  hints->ep_attr->type = kReliableDatagrams;
  hints->tx_attr->op_flags = kDeliveryComplete;
  hints->tx_attr->msg_order = kSendAfterSend;
  hints->rx_attr->msg_order = kSendAfterSend;
  DomainFacts& domain = *hints->domain_attr;
  domain.threading = kThreadDomain;
  domain.resource_mgmt = kManaged;
  domain.mr_mode = kMrLocal | kMrVirtualAddress | kMrAllocated | kMrProviderKey | kMrEndpoint;
  if (device_memory) domain.mr_mode |= kMrDeviceMemory;
  Info* found = nullptr;
  const int code = table_.fi_getinfo(kApiVersion, nullptr, nullptr, 0, hints.get(), &found);
  return Infos(code == 0 ? found : nullptr, Freed{this});
}

}  // namespace linkgauge::ofi
