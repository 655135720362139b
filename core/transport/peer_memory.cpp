#include "transport/peer_memory.h"

#include <map>
#include <span>
#include <string>
#include <utility>

#include "base/errors.h"
#include "base/patterns.h"
#include "base/wire.h"
#include "traffic/layout.h"
#include "transport/agreement.h"

namespace linkgauge {
namespace {

// A buffer that a rank shares, behind which comes its handle.
struct Exposed {
  std::uint64_t pointer = 0;
  std::uint64_t bytes = 0;
  std::int64_t copy_device = -1;
};
// Which flow is served by which of a rank's buffers.
struct Use {
  std::int32_t user = 0;
  std::int32_t ordinal = 0;
  std::uint64_t buffer = 0;
};

}  // namespace

std::string why_not_shareable(const RankContext& context, MemoryKind kind) {
  if (context.size() == 1 || context.group->one_process() || context.runtime->can_share(kind)) return "";
  return std::string(to_string(kind)) + " memory of " + std::string(context.runtime->name()) +
         " devices cannot be shared between processes; use " +
         (context.runtime->can_share(MemoryKind::kDevice) ? "device memory, or --threads" : "--threads");
}

std::string why_not_shareable(const RankContext& context, const CaseSpec& spec, bool pushed) {
  if (!traits_of(spec.traffic.pattern).comes_back)
    return why_not_shareable(context, pushed ? spec.places.target.kind : spec.places.source.kind);
  std::string reason = why_not_shareable(context, spec.places.source.kind);
  return reason.empty() ? why_not_shareable(context, spec.places.target.kind) : reason;
}

std::vector<PeerBuffer> open_peers(const RankContext& context, const Flows& flows, ExposedEnd end) {
  return open_peers(context, flows, end, context.device());
}

std::vector<PeerBuffer> open_peers(const RankContext& context, const Flows& flows, ExposedEnd end, int device) {
  Group& group = *context.group;
  const int me = group.rank();
  const auto owner_of = [&](const Flow& flow) { return end == ExposedEnd::kTarget ? flow.target : flow.source; };
  const auto user_of = [&](const Flow& flow) { return end == ExposedEnd::kTarget ? flow.source : flow.target; };
  const auto buffer_of = [&](const Flow& flow) {
    return end == ExposedEnd::kTarget ? flow.target_buffer : flow.source_buffer;
  };

  std::map<std::pair<int, int>, std::size_t> used;  // by owner and ordinal
  for (std::size_t i = 0; i < flows.size(); ++i) {
    if (user_of(flows[i]) == me) used[{owner_of(flows[i]), flows[i].ordinal}] = i;
  }

  // Each buffer is shared once, however many flows it serves. Which serves which is told where there are several: every
  // rank gets all ranks' words.
  std::string reason;
  std::map<const Buffer*, std::uint64_t> numbers;
  WireWriter exposed;
  std::vector<Use> uses;
  for (std::size_t i = 0; i < flows.size(); ++i) {
    if (owner_of(flows[i]) != me || user_of(flows[i]) == me) continue;
    const Buffer* buffer = buffer_of(flows[i]);
    const auto [place, is_new] = numbers.emplace(buffer, numbers.size());
    uses.push_back({user_of(flows[i]), flows[i].ordinal, place->second});
    if (!is_new) continue;
    SharedHandle handle;
    if (!group.one_process() && reason.empty()) {
      try {
        handle = context.runtime->share(buffer->data());
      } catch (const Error& error) {
        reason = error.what();
      }
    }
    exposed.value(Exposed{reinterpret_cast<std::uintptr_t>(buffer->data()), buffer->size(), buffer->copy_device()});
    exposed.bytes(handle.bytes);
  }
  if (numbers.size() < 2) uses.clear();
  const std::vector<Bytes> all = group.exchange(WireWriter()
                                                    .value(std::uint64_t{numbers.size()})
                                                    .rest(exposed.message())
                                                    .rest(std::as_bytes(std::span(uses)))
                                                    .message(),
                                                {});
  agree_or_throw(group, reason);

  std::vector<PeerBuffer> result(flows.size());
  std::map<std::pair<int, std::uint64_t>, PeerBuffer> opened;
  for (int rank = 0; rank < group.size(); ++rank) {
    WireReader reader(all[static_cast<std::size_t>(rank)]);
    std::vector<std::pair<Exposed, SharedHandle>> buffers;
    for (auto count = reader.value<std::uint64_t>(); count > 0; --count)
      buffers.push_back({reader.value<Exposed>(), SharedHandle{reader.bytes()}});
    const auto use = [&](std::size_t flow, std::uint64_t number) {
      const auto [place, is_new] = opened.emplace(std::make_pair(rank, number), PeerBuffer{});
      if (is_new && reason.empty()) {
        const auto& [buffer, handle] = buffers[number];
        place->second.copy_device = static_cast<int>(buffer.copy_device);
        place->second.bytes = buffer.bytes;
        if (group.one_process()) {
          place->second.data = reinterpret_cast<void*>(static_cast<std::uintptr_t>(buffer.pointer));
        } else {
          try {
            void* data = context.runtime->open_shared(device, handle);
            place->second.data = data;
            place->second.opened = std::shared_ptr<void>(
                data, [runtime = context.runtime](void* memory) { runtime->close_shared(memory); });
          } catch (const Error& error) {
            reason = error.what();
          }
        }
      }
      result[flow] = place->second;
    };
    if (buffers.size() == 1 && rank != me) {  // its own it reaches as it is
      for (auto flow = used.lower_bound({rank, 0}); flow != used.end() && flow->first.first == rank; ++flow)
        use(flow->second, 0);
    }
    for (const Use& theirs : values_of<Use>(reader.rest())) {
      if (theirs.user != me) continue;
      const auto flow = used.find({rank, theirs.ordinal});
      if (flow == used.end()) throw PeerError("a peer shares memory for a flow that this rank does not have");
      use(flow->second, theirs.buffer);
    }
  }
  for (std::size_t i = 0; i < flows.size(); ++i) {
    if (owner_of(flows[i]) != me || user_of(flows[i]) != me) continue;
    result[i].data = buffer_of(flows[i])->data();
    result[i].copy_device = buffer_of(flows[i])->copy_device();
    result[i].bytes = buffer_of(flows[i])->size();
  }
  agree_or_throw(group, reason);
  return result;
}

}  // namespace linkgauge
