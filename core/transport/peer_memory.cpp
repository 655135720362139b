#include "transport/peer_memory.h"

#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "base/errors.h"
#include "base/patterns.h"
#include "traffic/layout.h"
#include "transport/agreement.h"

namespace linkgauge {
namespace {

// The messages of the exchange: integers and byte strings one after the other.
class Writer {
 public:
  void number(std::uint64_t value) { append(&value, sizeof value); }
  void text(const std::vector<std::byte>& value) {
    number(value.size());
    append(value.data(), value.size());
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  void append(const void* data, std::size_t size) {
    const std::size_t place = bytes_.size();
    bytes_.resize(place + size);
    if (size > 0) std::memcpy(&bytes_[place], data, size);
  }
  std::vector<std::byte> bytes_;
};

class Reader {
 public:
  explicit Reader(const std::vector<std::byte>& bytes) : bytes_(bytes) {}
  std::uint64_t number() {
    std::uint64_t value = 0;
    std::memcpy(&value, take(sizeof value), sizeof value);
    return value;
  }
  std::vector<std::byte> text() {
    const std::uint64_t size = number();
    const std::byte* begin = take(size);
    return {begin, begin + size};
  }

 private:
  const std::byte* take(std::size_t size) {
    if (size > bytes_.size() - place_) throw PeerError("a peer's handle message is too short");
    place_ += size;
    return bytes_.data() + place_ - size;
  }
  const std::vector<std::byte>& bytes_;
  std::size_t place_ = 0;
};

struct Exposed {
  std::uint64_t pointer = 0;
  std::uint64_t bytes = 0;
  int copy_device = -1;
  SharedHandle handle;
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
  Writer exposed;
  Writer of_flow;
  for (std::size_t i = 0; i < flows.size(); ++i) {
    if (owner_of(flows[i]) != me || user_of(flows[i]) == me) continue;
    const Buffer* buffer = buffer_of(flows[i]);
    const auto [place, is_new] = numbers.emplace(buffer, numbers.size());
    of_flow.number(static_cast<std::uint64_t>(user_of(flows[i])));
    of_flow.number(static_cast<std::uint64_t>(flows[i].ordinal));
    of_flow.number(place->second);
    if (!is_new) continue;
    SharedHandle handle;
    if (!group.one_process() && reason.empty()) {
      try {
        handle = context.runtime->share(buffer->data());
      } catch (const Error& error) {
        reason = error.what();
      }
    }
    exposed.number(reinterpret_cast<std::uintptr_t>(buffer->data()));
    exposed.number(buffer->size());
    exposed.number(static_cast<std::uint64_t>(buffer->copy_device()) + 1);
    exposed.text(handle.bytes);
  }
  Writer message;
  message.number(numbers.size());
  message.text(exposed.bytes());
  message.text(numbers.size() > 1 ? of_flow.bytes() : std::vector<std::byte>());
  const std::vector<std::vector<std::byte>> all = group.exchange(message.bytes(), {});
  agree_or_throw(group, reason);

  std::vector<PeerBuffer> result(flows.size());
  std::map<std::pair<int, std::uint64_t>, PeerBuffer> opened;
  for (int rank = 0; rank < group.size(); ++rank) {
    Reader reader(all[static_cast<std::size_t>(rank)]);
    std::vector<Exposed> buffers(reader.number());
    const std::vector<std::byte> exposed_bytes = reader.text();
    const std::vector<std::byte> flow_bytes = reader.text();
    Reader exposed_reader(exposed_bytes);
    for (Exposed& buffer : buffers) {
      buffer.pointer = exposed_reader.number();
      buffer.bytes = exposed_reader.number();
      buffer.copy_device = static_cast<int>(exposed_reader.number() - 1);
      buffer.handle.bytes = exposed_reader.text();
    }
    const auto use = [&](std::size_t flow, std::uint64_t number) {
      const auto [place, is_new] = opened.emplace(std::make_pair(rank, number), PeerBuffer{});
      if (is_new && reason.empty()) {
        const Exposed& buffer = buffers[number];
        place->second.copy_device = buffer.copy_device;
        place->second.bytes = buffer.bytes;
        if (group.one_process()) {
          place->second.data = reinterpret_cast<void*>(static_cast<std::uintptr_t>(buffer.pointer));
        } else {
          try {
            void* data = context.runtime->open_shared(device, buffer.handle);
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
    Reader flow_reader(flow_bytes);
    for (std::size_t count = flow_bytes.size() / (3 * sizeof(std::uint64_t)); count > 0; --count) {
      const auto user = static_cast<int>(flow_reader.number());
      const auto ordinal = static_cast<int>(flow_reader.number());
      const std::uint64_t number = flow_reader.number();
      if (user != me) continue;
      const auto flow = used.find({rank, ordinal});
      if (flow == used.end()) throw PeerError("a peer shares memory for a flow that this rank does not have");
      use(flow->second, number);
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
